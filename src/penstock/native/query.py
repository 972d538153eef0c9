"""Runs a query, or most of one, in a single Python worker of Spark: DuckDB reads all files of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.native.engine import computed, connected
from penstock.native.errors import NotNativeError
from penstock.native.memory import free_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.native.columns import Column
    from penstock.native.files import FileRange, Files


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
        if self.is_value and rows > 1:
            raise NotNativeError("a subquery gives more than one row")


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
        Bytes that DuckDB may use before it spills; never more than half of what is free, as other queries may begin.
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
        with connected(min(self.memory, free_memory() // 2), self.threads) as connection:
            for number, scan in enumerate(scans):
                connection.execute(f"CREATE TEMP VIEW scan_{number} AS {scan}")
            for result in self.results:
                result.make(connection)
            yield from computed(connection, self.sql, self.columns)
        for _ in batches:
            pass
