"""Estimates that decisions are based on, compared with the actual values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.base.units import show_bytes, show_count

MISS_FACTOR = 2.0
"""An estimate that is wrong by this factor or more is a miss.

A smaller error seldom changes a decision: a task that reads twice or half the volume runs about as well, and Spark's
estimates of compressed columns are also wrong by up to this factor.
"""
_NEGLIGIBLE = {"bytes": 4 << 20, "rows": 1000, "fraction": 0.05}
"""By unit: if estimate and actual value are at most this value, it is no miss, as the difference changes little."""

_MIN_WHOLE_FACTOR = 10
"""Factors of at least this value are shown without decimal places."""


class Unit(StrEnum):
    """The unit of an estimate."""

    BYTES = "bytes"
    ROWS = "rows"
    FRACTION = "fraction"

    def show(self, number: float) -> str:
        """Return a number of this unit as text.

        >>> Unit.FRACTION.show(0.125), Unit.BYTES.show(3 << 20)
        ('12.5%', '3.0 MiB')
        """
        match self:
            case Unit.BYTES:
                return show_bytes(number)
            case Unit.ROWS:
                return show_count(round(number), "row")
            case Unit.FRACTION:
                return f"{number:.1%}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated figure that a decision is based on, compared with the actual value later.

    Parameters
    ----------
    what
        What is estimated, such as ``bytes read from orders``.
    actual
        The value that was measured later, or a lower bound of it (`is_least`); None if unknown.
    is_most
        Whether the estimate is an upper bound: then a smaller actual value is not a miss.
    limit
        The limit that the decision compared the estimate with, or None. An actual value on its other side is a miss.
    is_least
        Whether `actual` is only a lower bound of the actual value, because no more could be measured.
    """

    what: str
    unit: Unit
    estimated: float
    actual: float | None = None
    is_most: bool = False
    limit: float | None = None
    is_least: bool = False

    def with_actual(self, actual: float, *, is_least: bool = False) -> Estimate:
        """Return the estimate with the actual value, or with a lower bound of it."""
        return replace(self, actual=actual, is_least=is_least)

    @property
    def missed_by(self) -> float | None:
        """The factor by which the estimate was wrong; None if it was not a miss or the actual value is unknown.

        >>> Estimate("rows of orders", Unit.ROWS, 2000, 5000).missed_by
        2.5
        """
        if self.actual is None or max(self.estimated, self.actual) <= _NEGLIGIBLE[self.unit]:
            return None
        if self.is_most and self.actual <= self.estimated:
            return None
        smaller, larger = sorted((self.estimated, self.actual))
        factor = larger / max(smaller, 0.001 if self.unit is Unit.FRACTION else 1)
        crosses_limit = self.limit is not None and (self.estimated <= self.limit) != (self.actual <= self.limit)
        if factor < MISS_FACTOR and not crosses_limit:
            return None
        return round(factor, 1 if factor < _MIN_WHOLE_FACTOR else None)

    def __str__(self) -> str:
        most = "at most " if self.is_most else ""
        least = "at least " if self.is_least else ""
        actual = "" if self.actual is None else f", {least}{self.unit.show(self.actual)} actual"
        return f"{most}{self.unit.show(self.estimated)} estimated{actual}{self._miss_text}"

    @property
    def _miss_text(self) -> str:
        factor = self.missed_by
        if factor is None or self.actual is None:
            return ""
        if not self.actual or not self.estimated:  # zero has no meaningful factor
            return " (missed)"
        return f" (missed: {factor:,} times {'less' if self.actual < self.estimated else 'more'})"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "what": self.what,
            "unit": self.unit.value,
            "foreseen": self.estimated,
            "came": self.actual,
            "missed_by": self.missed_by,
            "is_least": self.is_least,
            "text": str(self),
        }


@dataclass(frozen=True, slots=True)
class EstimateRecord:
    """An estimate in an event log; `text` describes the estimated and the actual value."""

    what: str
    unit: str
    estimated: float
    actual: float | None
    missed_by: float | None
    text: str
    is_least: bool = False

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> EstimateRecord:
        """Return the estimate of a record, see `Estimate.as_dict`; fields added by newer releases are ignored."""
        figures = (record["foreseen"], record["came"], record["missed_by"])
        return cls(record["what"], record["unit"], *figures, record["text"], record.get("is_least", False))

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"

    @property
    def error_text(self) -> str:
        """The error of a miss as text, such as "33 times" or "actual 0"; empty if it is not a miss."""
        if self.missed_by is None:
            return ""
        if not self.actual:
            return "actual 0"
        return f"{self.missed_by:,} times" if self.estimated else "estimated 0"

    @property
    def severity(self) -> tuple[bool, float]:
        """Sort key of a miss, larger for a worse miss; misses without a factor (a value is 0) are the worst."""
        if self.actual and self.estimated:
            return False, self.missed_by or 0.0
        return True, max(self.estimated, self.actual or 0.0)
