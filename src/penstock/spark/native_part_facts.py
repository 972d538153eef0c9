"""What is known of a part of a plan that DuckDB could compute, and whether that pays (``java/NativeParts.java``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.native.columns import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_LEFT = 0.1
"""Where rows leave as rows, a part without an aggregate pays if at most this part of them is left.

Per row that it reads it saves some 60 ns, and a row that it hands over costs Spark some 400 ns more (TPC-H, scale 10).
"""
LEAST_VALUES = 20_000_000
"""So many values must be read: DuckDB saves some 8 ns of each, and to begin costs a tenth of a second (TPC-DS)."""
LEAST_ROWS = 1_000_000
"""So many rows must be read where they can leave as columns: what comes after the exchange is faster, too."""
LEAST_OF_INPUTS = 10_000
"""So many exchanged rows a task must read: to begin costs it some 30 ms."""
BYTES_OF_A_ROW = 8
"""Bytes of an exchanged row, as it was written; two whole numbers take about so many when they are compressed."""
IN_MEMORY = 4
"""Exchanged columns take so many times as many bytes in memory as they did when they were written (TPC-H: 2 to 4)."""
MOST_JOINED = 0.25
"""A task may hash so many rows for each that it reads: hash tables are made by every task anew."""
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
        The query of DuckDB; ``scan`` is the rows of the files.
    read, columns
        What it reads of the files, and what it gives.
    calendar, folders
        As of `Files`.
    inputs
        The columns of each input that was exchanged as columns.
    builds
        How many sides were broadcast to its joins.
    keys
        The numbers of the keys that its rows must be among (`key_rows`).
    joined_rows
        How many rows these sides have.
    task_bytes
        How many bytes of inputs the largest task reads at most, as they were written.
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
    folders: tuple[Column, ...] = field(default=(), repr=False)
    inputs: tuple[tuple[Column, ...], ...] = ()
    builds: int = 0
    keys: tuple[int, ...] = ()
    joined_rows: int = 0
    task_bytes: int = 0
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
            "folders": _columns(facts["folders"]),
            "columns": _columns(facts["columns"]),
            "inputs": tuple(map(_columns, facts["inputs"])),
            "keys": tuple(facts["keys"]),
            "scatter": scatter and ScatterFacts(tuple(scatter["keys"]), scatter["subpartitions"]),
        }
        return cls(declined=None, **{**facts, **typed})

    def why_small(self, tasks: int, rows: int) -> str | None:
        """Return why a part does too little for DuckDB, None if it does enough.

        Parameters
        ----------
        tasks, rows
            How many tasks it has, and how many rows each of them reads, about.
        """
        if self.inputs:
            least = LEAST_OF_INPUTS
        else:
            least = LEAST_ROWS if self.scatter is not None else LEAST_VALUES // max(len(self.read), 1)
        if tasks * rows < least:
            return f"about {tasks * rows} rows are too few for what it costs to begin"
        if self.joined_rows > MOST_JOINED * rows:
            return f"each task would hash {self.joined_rows} rows to join them with {rows}"
        return None

    @property
    def task_rows(self) -> int:
        """About how many rows of inputs the largest task reads, at least: written rows take as many bytes, or fewer."""
        return self.task_bytes // BYTES_OF_A_ROW

    def why_memory(self, memory: int) -> str | None:
        """Return why a task cannot hold its inputs, None if it can.

        Parameters
        ----------
        memory
            The bytes that DuckDB may use in a task.
        """
        if self.task_bytes * IN_MEMORY > memory:
            return (
                f"a task would hold {self.task_bytes} bytes of input in memory, about {IN_MEMORY} times as many there"
            )
        return None

    def why_many(self, share: float) -> str | None:
        """Return why a part whose rows leave as rows is faster in Spark, None if it is not.

        Parameters
        ----------
        share
            The part of its rows that is left.
        """
        if self.aggregates or share <= MOST_LEFT:
            return None
        stay = f"{share:.0%} of the rows stay, and it would cost more to hand them over than is saved"
        return stay if self.above is None else f"{self.above}: {stay}"

    def leaves_as_columns(self, rows: float) -> bool:
        """Whether its rows leave as columns, if a task gives so many."""
        return self.scatter is not None and rows >= LEAST_OF_A_BATCH * self.scatter.subpartitions


def _columns(facts: list[dict[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(**one) for one in facts)
