"""Properties of a part of a plan that DuckDB could compute, and the decision whether that pays off.

See ``NativeParts.java``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker.columns import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_OUTPUT_RATIO = 0.1
"""A part without an aggregate that returns rows (not columns) pays off up to this ratio of output to input rows.

DuckDB saves some 60 ns per input row, and each output row costs some 400 ns more in Spark (TPC-H, scale 10).
"""
MIN_VALUES = 20_000_000
"""Minimum number of values read: DuckDB saves some 8 ns per value, and costs a tenth of a second to start (TPC-DS)."""
MIN_ROWS = 1_000_000
"""Minimum number of rows read if they can leave as columns, which also speeds up the stage after the exchange."""
MIN_INPUT_ROWS = 10_000
"""Minimum number of exchanged rows that a task reads: starting costs some 30 ms."""
BYTES_PER_ROW = 8
"""Written size of an exchanged row: about two compressed integers."""
MEMORY_FACTOR = 4
"""Size of exchanged columns in memory, relative to their written size (TPC-H: 2 to 4)."""
MAX_JOINED_RATIO = 0.25
"""Maximum number of rows that a task hashes per row that it reads: every task builds its own hash tables."""
MIN_BATCH_ROWS = 100
"""Minimum number of rows per subpartition of a task to leave as columns: a batch costs as much as some rows."""


@dataclass(frozen=True, slots=True)
class ScatterFacts:
    """How the rows of a part are exchanged: the positions of the hashed columns, and the number of subpartitions."""

    keys: tuple[int, ...]
    subpartitions: int


@dataclass(frozen=True, slots=True)
class PartFacts:
    """A part of a plan, and whether DuckDB can compute it.

    Parameters
    ----------
    table
        The table that the part reads; empty if it reads exchanged columns.
    declined
        Why Spark computes the part; None if DuckDB does.
    sql
        The DuckDB query; it reads the rows of the files as ``scan``.
    read, columns
        The columns read from the files, and the output columns.
    calendar, folders
        As in `penstock.duckdb.worker.files.Files`.
    inputs
        The columns of each input that was exchanged as columns.
    keys
        The numbers of the key sets that filter its rows (`key_rows`).
    joined_rows
        The total number of rows of the broadcast sides.
    task_bytes
        Upper bound of the written bytes of inputs that a task reads.
    scatter
        How its rows are exchanged directly afterwards, if they could leave as columns.
    above
        Why the operator above is not part of it, if it could be.
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
        """Convert the facts of ``NativeParts.java``."""
        if "declined" in facts:
            return cls(facts["table"], facts["declined"])
        scatter = facts.get("scatter")
        typed = {
            "read": typed_columns(facts["read"]),
            "folders": typed_columns(facts["folders"]),
            "columns": typed_columns(facts["columns"]),
            "inputs": tuple(map(typed_columns, facts["inputs"])),
            "keys": tuple(facts["keys"]),
            "scatter": scatter and ScatterFacts(tuple(scatter["keys"]), scatter["subpartitions"]),
        }
        return cls(declined=None, **{**facts, **typed})

    def too_small_reason(self, tasks: int, rows: int) -> str | None:
        """Return why a part has too little work for DuckDB, None if it has enough; `rows` is the estimate per task."""
        if self.inputs:
            minimum = MIN_INPUT_ROWS
        else:
            minimum = MIN_ROWS if self.scatter is not None else MIN_VALUES // max(len(self.read), 1)
        if tasks * rows < minimum:
            return f"about {tasks * rows} rows are too few to make up for DuckDB's start-up cost"
        if self.joined_rows > MAX_JOINED_RATIO * rows:
            return f"each task would hash {self.joined_rows} rows to join them with {rows}"
        return None

    @property
    def task_rows(self) -> int:
        """Estimated lower bound of the rows of inputs that the largest task reads, from their written size."""
        return self.task_bytes // BYTES_PER_ROW

    def memory_reason(self, memory: int) -> str | None:
        """Return why a task cannot hold its inputs in the bytes that DuckDB may use, None if it can."""
        if self.task_bytes * MEMORY_FACTOR > memory:
            return f"a task would hold {self.task_bytes} bytes of input, about {MEMORY_FACTOR} times as much in memory"
        return None

    def too_many_rows_reason(self, output_ratio: float) -> str | None:
        """Return why Spark is faster for a part with this ratio of output to input rows, None if it is not."""
        if self.aggregates or output_ratio <= MAX_OUTPUT_RATIO:
            return None
        reason = f"{output_ratio:.0%} of the rows remain, and returning them to Spark would cost more than DuckDB saves"
        return reason if self.above is None else f"{self.above}: {reason}"

    def leaves_as_columns(self, rows: float) -> bool:
        """Whether the output leaves as columns if each task returns this many rows."""
        return self.scatter is not None and rows >= MIN_BATCH_ROWS * self.scatter.subpartitions


def typed_columns(facts: list[dict[str, str]]) -> tuple[Column, ...]:
    """Return the columns of a part by the facts of the JVM."""
    return tuple(Column(**fields) for fields in facts)
