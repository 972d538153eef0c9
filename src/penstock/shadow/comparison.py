"""What a comparison with plain Spark found, as plain values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What can be said of an output."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARED = "cannot be compared"
    BY_SPARK = "computed by Spark"


class Engine(StrEnum):
    """The engine that computed an output."""

    NATIVE = "native"
    PENSTOCK = "Penstock"
    BOTH = "Penstock, native steps"
    SPARK = "Spark"


@dataclass(frozen=True, slots=True)
class Comparison:
    """An output of a job, beside what plain Spark makes of the same DataFrame.

    Parameters
    ----------
    output
        The sink's name.
    verdict
        Whether the two are equal.
    reason
        How that is known, or why it is not; half a sentence.
    rows, plain_rows
        How many rows Penstock and plain Spark made; None where there are none.
    columns
        The names of the columns that differ, where there are as many rows.
    examples, plain_examples
        A few rows that one of the two has more often than the other, by column.
    names
        The columns.
    seconds, plain_seconds
        How long the whole job took on Penstock, until its rows were there, and this output's query on plain Spark.
    location
        The user's line.
    engine
        The engine that computed it.
    """

    output: str
    verdict: Verdict
    reason: str
    rows: int | None = None
    plain_rows: int | None = None
    columns: tuple[str, ...] = ()
    examples: tuple[tuple[str | None, ...], ...] = ()
    plain_examples: tuple[tuple[str | None, ...], ...] = ()
    names: tuple[str, ...] = ()
    seconds: float | None = None
    plain_seconds: float | None = None
    location: str = ""
    engine: Engine = Engine.PENSTOCK

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "output": self.output,
            "location": self.location,
            "engine": self.engine.value,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "rows": {"penstock": self.rows, "spark": self.plain_rows},
            "seconds": {"penstock": _rounded(self.seconds), "spark": _rounded(self.plain_seconds)},
            "columns": list(self.columns),
            "more-on-penstock": [list(row) for row in self.examples],
            "more-on-spark": [list(row) for row in self.plain_examples],
            "column-names": list(self.names),
        }

    def __str__(self) -> str:
        lines = [f"{self.output}: {self.verdict.value}: {self.reason}"]
        if self.columns:
            lines.append(f"  columns that differ: {', '.join(self.columns)}")
        for title, rows in (("more often on Penstock", self.examples), ("more often on Spark", self.plain_examples)):
            lines += [f"  {title}: {_shown(self.names, row)}" for row in rows]
        return "\n".join(lines)


@dataclass(slots=True)
class ShadowReport:
    """The comparisons of a job.

    Parameters
    ----------
    job
        The job's name.
    comparisons
        One for each output.
    """

    job: str
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def differences(self) -> list[Comparison]:
        """The outputs that differ."""
        return [one for one in self.comparisons if one.verdict is Verdict.DIFFERENT]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"job": self.job, "outputs": [one.as_dict() for one in self.comparisons]}


REPORTS: deque[ShadowReport] = deque(maxlen=4096)
"""What was compared in this process, oldest first."""


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _shown(names: tuple[str, ...], row: tuple[str | None, ...]) -> str:
    pairs = zip(names, row, strict=True)
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in pairs)[:500]
