"""Runs a query, or most of it, in a single Python worker of Spark: DuckDB reads all files of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker import products
from penstock.duckdb.worker.columns import wire_batch
from penstock.duckdb.worker.engine import NotNativeError, open_connection, query_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.files import FileRange, Files

_UNUSUAL_DATE = (
    "{0} < DATE '0001-01-01' OR {0} > DATE '9999-12-31' OR {0} BETWEEN DATE '1582-10-05' AND DATE '1582-10-14'"
)
"""SQL condition for dates ``{0}`` that Spark's Parquet filters reject, or shift to a later date (skipped in 1582)."""
_UNUSUAL_TIME = "{0} < make_timestamptz(-2208988800000000) OR {0} > make_timestamptz(253402300799999999)"
"""SQL condition for times ``{0}`` that Spark's Parquet filters may shift (before 1900) or reject."""
_UNUSUAL = {"DATE": _UNUSUAL_DATE, "TIMESTAMP WITH TIME ZONE": _UNUSUAL_TIME}
"""These conditions by DuckDB's types."""
_MEMORY_FACTOR = 16
"""Estimated bytes of memory per byte of the compressed files: hash tables of joins and groups are rarely larger than
the decoded columns, which have 2 to 6 bytes per byte of the files in TPC-H."""
_MIN_MEMORY = 128 << 20
"""Minimum bytes that a query requests, even for small files."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a query, and file ranges that cover its files completely."""

    name: str
    files: Files
    ranges: tuple[FileRange, ...]

    @property
    def size_in_bytes(self) -> int:
        """The size of the table's files in bytes."""
        return sum(file.length for file in self.ranges)

    def rows_query(self) -> str:
        """Return the query for all rows; raises `NotNativeError` if DuckDB might read a file differently from Spark."""
        return self.files.whole_files_query(self.ranges)


@dataclass(frozen=True, slots=True)
class NamedResult:
    """An intermediate result that later queries read by its name; a scalar subquery (`is_scalar`) has at most 1 row."""

    name: str
    sql: str
    is_scalar: bool

    def materialize(self, connection: Any) -> None:
        """Write the result to a temporary table, even if no row needs it, so that its errors are raised as in Spark."""
        (rows,) = connection.execute(f"CREATE TEMP TABLE {self.name} AS {self.sql}").fetchone()
        if not self.is_scalar:
            return
        if rows > 1:
            raise NotNativeError("a subquery returns more than one row")
        table = connection.table(self.name)
        for column, column_type in zip(table.columns, table.types, strict=True):
            condition = _UNUSUAL.get(str(column_type))
            if condition is not None and table.filter(condition.format(column)).fetchone() is not None:
                raise NotNativeError("a subquery returns a date or time that Spark's Parquet filters treat differently")


@dataclass(frozen=True, slots=True)
class QueryFunction:
    """The computation of a single-task query; a function for ``DataFrame.mapInArrow`` over a single row.

    The query `sql` returns `columns`, and reads the rows of its tables as ``scan_0``, ``scan_1`` and so on. `results`
    are materialized before, in this order. `memory` is the number of bytes that DuckDB may use on an executor, shared
    by concurrent queries, and `threads` the number of the executor's cores; both are set when the query runs. If more
    rows are returned than the driver gets directly, and not `may_be_large`, Spark computes the query.
    """

    sql: str
    results: tuple[NamedResult, ...]
    columns: tuple[Column, ...]
    tables: tuple[Table, ...]
    memory: int = 0
    threads: int = 1
    may_be_large: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the rows.

        The single input row is read last: Spark sends it in small packets, some tens of milliseconds late (Nagle's
        algorithm and delayed acknowledgements).
        """
        statements = [self.sql, *(result.sql for result in self.results)]
        yield from products.compute_short_first(statements, partial(self._rows, statements))
        for _ in batches:
            pass

    def _rows(self, statements: Sequence[str], length: products.Length) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in the wire format; `length` is that of products (`penstock.duckdb.worker.products`)."""
        scans = [table.rows_query() for table in self.tables]
        requested = sum(table.size_in_bytes for table in self.tables) * _MEMORY_FACTOR + _MIN_MEMORY
        files = {file.local_path for table in self.tables for file in table.ranges}
        with open_connection(min(requested, self.memory), self.threads, files, budget=self.memory) as connection:
            products.define_macros(connection, statements, length)
            for number, scan in enumerate(scans):
                connection.execute(f"CREATE TEMP VIEW scan_{number} AS {scan}")
            for result in self.results:
                result.materialize(connection)
            for batch in query_batches(connection, self.sql, self.columns):
                yield wire_batch(batch, self.columns)
