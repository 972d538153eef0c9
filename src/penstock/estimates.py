"""What was foreseen against what came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.units import show_bytes, show_count

MISS = 2.0
"""An estimate that is wrong by this factor is a miss.

Below it nothing would have been decided otherwise: a task may read twice the volume, or half of it, and runs about as
well, and Spark's own sizes of compressed columns are off by as much.
"""
_SMALL = {"bytes": 4 << 20, "rows": 1000, "fraction": 0.05}
"""What lies below fits one task and decides nothing: an estimate is no miss if all of it does."""

_LARGE = 10
"""Nobody needs a decimal place of a larger factor."""


class Unit(StrEnum):
    """What an estimate counts."""

    BYTES = "bytes"
    ROWS = "rows"
    FRACTION = "fraction"

    def show(self, number: float) -> str:
        """Return a number as people read it."""
        match self:
            case Unit.BYTES:
                return show_bytes(number)
            case Unit.ROWS:
                return show_count(round(number), "row")
            case Unit.FRACTION:
                return f"{number:.1%}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure that a decision was made from before it could be measured.

    Parameters
    ----------
    what
        What it is about, such as ``bytes read from orders``.
    unit
        What it counts.
    foreseen
        The estimate.
    came
        What was measured later, None while that is not known.
    is_most
        Whether it only said that there is no more than that: then less is no miss.
    limit
        What it was compared with for the decision, if it was: what comes on the other side of it is a miss.
    is_least
        Whether only that much of what came could be measured: there may have been more.
    """

    what: str
    unit: Unit
    foreseen: float
    came: float | None = None
    is_most: bool = False
    limit: float | None = None
    is_least: bool = False

    def settled(self, came: float, *, is_least: bool = False) -> Estimate:
        """Return the estimate with what came, or with the least that came."""
        return replace(self, came=came, is_least=is_least)

    @property
    def missed_by(self) -> float | None:
        """The factor by which it was wrong; None if it was right or nobody knows."""
        if self.came is None or max(self.foreseen, self.came) <= _SMALL[self.unit]:
            return None
        if self.is_most and self.came <= self.foreseen:
            return None
        low, high = sorted((self.foreseen, self.came))
        factor = high / max(low, 0.001 if self.unit is Unit.FRACTION else 1)
        if factor < MISS and not self._crossed(self.came):
            return None
        return round(factor, 1 if factor < _LARGE else None)

    def _crossed(self, came: float) -> bool:
        """Whether the decision would have been another one, had it been known."""
        return self.limit is not None and (self.foreseen <= self.limit) != (came <= self.limit)

    def __str__(self) -> str:
        most = "at most " if self.is_most else ""
        least = "at least " if self.is_least else ""
        came = "" if self.came is None else f", {least}{self.unit.show(self.came)} came"
        return f"{most}{self.unit.show(self.foreseen)} foreseen{came}{self._miss}"

    @property
    def _miss(self) -> str:
        factor = self.missed_by
        if factor is None or self.came is None:
            return ""
        if not self.came or not self.foreseen:  # of nothing there is no multiple
            return " (missed)"
        return f" (missed: {factor:,} times {'less' if self.came < self.foreseen else 'more'})"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "what": self.what,
            "unit": self.unit.value,
            "foreseen": self.foreseen,
            "came": self.came,
            "missed_by": self.missed_by,
            "is_least": self.is_least,
            "text": str(self),
        }
