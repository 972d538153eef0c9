"""What is known of a part of a plan that DuckDB could compute, and whether that pays (``java/NativeParts.java``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.native.columns import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.native.sample import Sample

MOST_LEFT = 0.1
"""Where rows leave as rows, a part without an aggregate pays if at most this part of them is left.

Per row that it reads it saves some 60 ns, and a row that it hands over costs Spark some 400 ns more (TPC-H, scale 10).
"""
LEAST_OF_A_BATCH = 100
"""Rows leave as columns if a task has about so many for each subpartition: a batch costs as much as some rows do."""


@dataclass(frozen=True, slots=True)
class ScatterFacts:
    """How rows are exchanged.

    Parameters
    ----------
    keys
        The places of the columns that are hashed.
    subpartitions
        How many there are.
    """

    keys: tuple[int, ...]
    subpartitions: int


@dataclass(frozen=True, slots=True)
class PartFacts:
    """A part of a plan, and whether DuckDB can compute it.

    Parameters
    ----------
    table
        What it reads; nothing if it reads exchanged columns.
    declined
        Why Spark computes it; None if DuckDB does.
    sql
        The query of DuckDB; ``{scan}`` stands for the rows of the files.
    read, columns
        What it reads of the files, and what it gives.
    calendar
        As of `Files`.
    inputs
        The columns of each input that was exchanged as columns.
    builds
        How many sides were broadcast to its joins.
    keys
        The numbers of the keys that its rows must be among (`key_rows`).
    aggregates
        Whether it sums up its rows.
    scatter
        How its rows are exchanged right after, if they could leave as columns.
    above
        Why what is above it is not part of it, if it could be.
    """

    table: str
    declined: str | None
    sql: str = field(default="", repr=False)
    read: tuple[Column, ...] = field(default=(), repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)
    calendar: str = "CORRECTED"
    inputs: tuple[tuple[Column, ...], ...] = ()
    builds: int = 0
    keys: tuple[int, ...] = ()
    aggregates: bool = False
    scatter: ScatterFacts | None = None
    above: str | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> PartFacts:
        """Return a part of what ``java/NativeParts.java`` tells about it."""
        if "declined" in facts:
            return cls(facts["table"], facts["declined"])
        scatter = facts.get("scatter")
        typed = {
            "read": _columns(facts["read"]),
            "columns": _columns(facts["columns"]),
            "inputs": tuple(map(_columns, facts["inputs"])),
            "keys": tuple(facts["keys"]),
            "scatter": scatter and ScatterFacts(tuple(scatter["keys"]), scatter["subpartitions"]),
        }
        return cls(declined=None, **{**facts, **typed})

    def why_not(self, sample: Sample) -> str | None:
        """Return why Spark is faster with a part that reads files, None if it is not."""
        if not sample.read:
            return "its files have no rows"
        if self.aggregates or sample.share <= MOST_LEFT or self.leaves_as_columns(sample):
            return None
        stay = f"{sample.share:.0%} of the rows stay, and it would cost more to hand them over than is saved"
        return stay if self.above is None else f"{self.above}: {stay}"

    def leaves_as_columns(self, sample: Sample | None) -> bool:
        """Whether its rows leave as columns; those of exchanged columns are not sampled, and do if they can."""
        if self.scatter is None:
            return False
        return sample is None or sample.of_a_task >= LEAST_OF_A_BATCH * self.scatter.subpartitions


def _columns(facts: list[dict[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(**one) for one in facts)
