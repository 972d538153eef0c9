"""The results of comparisons with plain Spark (Spark without Penstock), without references to the JVM."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """The result of a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARED = "cannot be compared"
    """Penstock ran the query, but the comparison was impossible or failed, or plain Spark's own runs differ."""
    BY_SPARK = "computed by Spark"
    """Spark itself ran the query, so there is nothing to compare."""


class Engine(StrEnum):
    """The engine of an output. NATIVE: DuckDB, in a single task. BOTH: Penstock, with DuckDB for some steps."""

    NATIVE = "native"
    PENSTOCK = "Penstock"
    BOTH = "Penstock, native steps"
    SPARK = "Spark"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of an output of a job with the rows of plain Spark.

    Parameters
    ----------
    output
        The name of the sink.
    reason
        The reason of the verdict, without a full stop.
    rows, plain_rows
        The numbers of rows of Penstock and of plain Spark; None if unknown.
    columns
        The names of the columns that differ; empty also if the numbers of rows differ.
    examples, plain_examples
        A few rows that Penstock (or plain Spark) returns more often, each as a tuple of texts in the order of `names`.
    names
        The names of all columns.
    seconds, plain_seconds
        The duration of the whole job on Penstock, without its commit, and of this output's query on plain Spark.
    location
        The user's line of code; empty if unknown.
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
            lines += [f"  {title}: {_row_text(self.names, row)}" for row in rows]
        return "\n".join(lines)


@dataclass(slots=True)
class ShadowReport:
    """The comparisons of the outputs of a job; `job` is its name."""

    job: str
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def differences(self) -> list[Comparison]:
        """The comparisons of the outputs that differ."""
        return [comparison for comparison in self.comparisons if comparison.verdict is Verdict.DIFFERENT]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"job": self.job, "outputs": [comparison.as_dict() for comparison in self.comparisons]}


REPORTS: deque[ShadowReport] = deque(maxlen=4096)
"""The latest reports of this process, oldest first."""


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _row_text(names: tuple[str, ...], row: tuple[str | None, ...]) -> str:
    pairs = zip(names, row, strict=True)
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in pairs)[:500]
