"""Runs a query, or most of it, in a single Python worker of Spark: DuckDB reads all files of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker.engine import open_connection, query_batches
from penstock.duckdb.worker.errors import NotNativeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.files import FileRange, Files


_UNUSUAL_DAY = (
    "{0} < DATE '0001-01-01' OR {0} > DATE '9999-12-31' OR {0} BETWEEN DATE '1582-10-05' AND DATE '1582-10-14'"
)
"""Dates that Spark's filters of Parquet files reject or shift to later dates, as calendars skip them."""
_BYTES_IN_MEMORY = 16
"""Estimated memory of a query per byte of its compressed files: its joins and groups are never larger than the decoded
columns (TPC-H: 2 to 6)."""
_LEAST_MEMORY = 128 << 20
"""Minimum bytes that a query requests, even for small files."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a query and its file ranges, several per file if Spark split it."""

    name: str
    files: Files
    ranges: tuple[FileRange, ...]

    @property
    def size_in_bytes(self) -> int:
        """The size of the table's files in bytes."""
        return sum(file.length for file in self.ranges)

    def check(self) -> None:
        """Check that DuckDB can read all files of the table.

        Raises `NotNativeError` if DuckDB might read a file differently from Spark.
        """
        self.files.whole_files_query(self.ranges)


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A named result that later queries read; `is_value` marks a scalar subquery, with at most one row."""

    name: str
    sql: str
    is_value: bool

    def materialize(self, connection: Any) -> None:
        """Compute the result into a table, even if no row needs it: like in Spark, an error must surface."""
        (rows,) = connection.execute(f"CREATE TEMP TABLE {self.name} AS {self.sql}").fetchone()
        if not self.is_value:
            return
        if rows > 1:
            raise NotNativeError("a subquery returns more than one row")
        table = connection.table(self.name)
        for column, kind in zip(table.columns, table.types, strict=True):
            if str(kind) == "DATE" and table.filter(_UNUSUAL_DAY.format(column)).fetchone() is not None:
                raise NotNativeError("a subquery returns a date that Spark's filters of files treat differently")


@dataclass(frozen=True, slots=True)
class NativeQueryStep:
    """The computation of a single-task query; a function for ``DataFrame.mapInArrow`` over a single row.

    Parameters
    ----------
    sql
        The query; ``scan_0``, ``scan_1`` and so on are the rows of its tables.
    results
        Results to materialize first, in this order.
    memory
        The bytes that DuckDB may use on an executor, set when the query runs. Concurrent queries share them.
    threads
        The number of threads: the cores of an executor.
    """

    sql: str
    results: tuple[NamedResult, ...]
    columns: tuple[Column, ...]
    tables: tuple[Table, ...]
    memory: int = 0
    threads: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the rows.

        The single input row is read last: Spark sends it in small packets, some tens of milliseconds late (Nagle's
        algorithm and delayed acknowledgements).
        """
        scans = [table.files.whole_files_query(table.ranges) for table in self.tables]
        requested = sum(table.size_in_bytes for table in self.tables) * _BYTES_IN_MEMORY + _LEAST_MEMORY
        files = {file.local for table in self.tables for file in table.ranges}
        with open_connection(min(requested, self.memory), self.threads, files, budget=self.memory) as connection:
            for number, scan in enumerate(scans):
                connection.execute(f"CREATE TEMP VIEW scan_{number} AS {scan}")
            for result in self.results:
                result.materialize(connection)
            yield from query_batches(connection, self.sql, self.columns)
        for _ in batches:
            pass
