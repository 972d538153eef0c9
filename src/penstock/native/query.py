"""Runs a query, or most of one, in a single Python worker of Spark: DuckDB reads all files of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.native.engine import computed, connected
from penstock.native.errors import NotNativeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.native.columns import Column
    from penstock.native.files import FileRange, Files


_UNUSUAL_DAY = (
    "{0} < DATE '0001-01-01' OR {0} > DATE '9999-12-31' OR {0} BETWEEN DATE '1582-10-05' AND DATE '1582-10-14'"
)
"""Days on which Spark's filters of Parquet files fail, or that they take for later ones: calendars skipped them."""
_BYTES_IN_MEMORY = 16
"""A query may need this many bytes for each byte of its files, which are compressed: its joins and groups are never
larger than the decoded columns (TPC-H: 2 to 6)."""
_LEAST_MEMORY = 128 << 20
"""Bytes that even a query of small files asks for."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a query.

    Parameters
    ----------
    name
        What it is called.
    files
        How its files are read.
    ranges
        The files, which may be in several ranges.
    """

    name: str
    files: Files
    ranges: tuple[FileRange, ...]

    @property
    def size_in_bytes(self) -> int:
        """The bytes of its files."""
        return sum(one.length for one in self.ranges)

    def check(self) -> None:
        """Look at all of its files.

        Raises
        ------
        NotNativeError
            If DuckDB might read one otherwise than Spark.
        """
        self.files.whole(self.ranges)


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A result that later queries read.

    Parameters
    ----------
    name
        By which they read it.
    sql
        Its query.
    is_value
        Whether it is the value of a subquery, of one row at most.
    """

    name: str
    sql: str
    is_value: bool

    def make(self, connection: Any) -> None:
        """Compute it. An error must be seen, whether any row needs it or not, as Spark computes subqueries first."""
        (rows,) = connection.execute(f"CREATE TEMP TABLE {self.name} AS {self.sql}").fetchone()
        if not self.is_value:
            return
        if rows > 1:
            raise NotNativeError("a subquery gives more than one row")
        table = connection.table(self.name)
        for column, kind in zip(table.columns, table.types, strict=True):
            if str(kind) == "DATE" and table.filter(_UNUSUAL_DAY.format(column)).fetchone() is not None:
                raise NotNativeError("a subquery gives a day that Spark's filters of files read otherwise")


@dataclass(frozen=True, slots=True)
class NativeQueryStep:
    """What the one task of a query computes; a function for ``DataFrame.mapInArrow``, of a single row.

    Parameters
    ----------
    sql
        The query; ``scan_0``, ``scan_1`` and so on are the rows of its tables.
    results
        What is computed before, each in turn.
    columns
        What it gives.
    tables
        Its tables.
    memory
        The bytes that DuckDB may use on an executor. Queries that run at a time share them.
    threads
        How many threads compute: the cores of an executor.
    """

    sql: str
    results: tuple[NamedResult, ...]
    columns: tuple[Column, ...]
    tables: tuple[Table, ...]
    memory: int
    threads: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the rows.

        The single row that is given is read last. Spark sends it in small pieces, some tens of milliseconds late
        (Nagle's algorithm, and acknowledgements that wait).
        """
        scans = [table.files.whole(table.ranges) for table in self.tables]
        wanted = sum(table.size_in_bytes for table in self.tables) * _BYTES_IN_MEMORY + _LEAST_MEMORY
        files = {file.local for table in self.tables for file in table.ranges}
        with connected(min(wanted, self.memory), self.threads, files, budget=self.memory) as connection:
            for number, scan in enumerate(scans):
                connection.execute(f"CREATE TEMP VIEW scan_{number} AS {scan}")
            for result in self.results:
                result.make(connection)
            yield from computed(connection, self.sql, self.columns)
        for _ in batches:
            pass
