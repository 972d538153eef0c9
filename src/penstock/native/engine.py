"""DuckDB as the steps of this room use it: one connection for each task, its errors those of `NotNativeError`."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.native.errors import NotNativeError
from penstock.native.workspace import workspace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from penstock.native.columns import Column

_BATCH_ROWS = 10_000
"""Rows of a batch of columns, as Spark's own ``spark.sql.execution.arrow.maxRecordsPerBatch``."""
OLDEST, NEWEST = (1, 5), (2, 0)
"""The releases of DuckDB that are tested, by their first two numbers. Others may answer otherwise."""
UNSUPPORTED = "is not supported"
"""Part of the error of an executor with another release."""


def unsupported(version: str) -> str | None:
    """Return why a release of DuckDB is not used, None if it is supported.

    Examples
    --------
    >>> unsupported("1.5.6")
    >>> unsupported("1.1.3")
    'DuckDB 1.1.3 is not supported: install 1.5 to 2.0'
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if OLDEST <= numbers <= NEWEST:
        return None
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    return f"DuckDB {version} {UNSUPPORTED}: install {oldest} to {newest}"


@contextmanager
def connected(
    memory: int,
    threads: int = 1,
    files: Iterable[str] = (),
    budget: int | None = None,
    *,
    reads_arrow: bool = False,
) -> Iterator[Any]:
    """Open a connection that reads the given files, writes to its spill directory, and reaches nothing else.

    Parameters
    ----------
    memory
        The bytes that it may use before it spills.
    threads
        The number of threads that compute.
    files
        The files that its queries read.
    budget
        The bytes that all tasks of the executor may use together, see `workspace`.
    reads_arrow
        Whether its queries read registered tables of Arrow. DuckDB 1.5 lets Arrow carry out filters of them, and those
        that a join derives from its other side. Arrow then compares NaN as no number is compared in SQL, and takes an
        infinite day for 1 January of the year 1. So neither is pushed down. (The order of a limited number of rows
        would still push one; no query of exchanged rows has it.)

    Raises
    ------
    NotNativeError
        If DuckDB is of another release, or fails.
    """
    import duckdb  # an executor may not have it, which is reported for the whole application
    import pyarrow as pa

    reason = unsupported(duckdb.__version__)
    if reason is not None:
        raise NotNativeError(reason)
    with workspace(memory, budget) as space:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": threads,
            "memory_limit": f"{space.memory}B",
            "temp_directory": space.directory,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        try:
            with duckdb.connect(config=settings) as connection:
                # DuckDB shows a limit of the configuration above, and does not apply it.
                connection.execute(f"SET max_temp_directory_size = '{space.most_spilled}B'")
                paths = ", ".join(map(quoted, files))
                connection.execute(f"SET allowed_paths = [{paths}]")
                if reads_arrow:
                    connection.execute("SET disabled_optimizers = 'filter_pushdown,join_filter_pushdown'")
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
                yield connection
        except (duckdb.Error, pa.ArrowInvalid) as error:
            raise NotNativeError(str(error)) from error


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def computed(connection: Any, sql: str, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a query, as they travel."""
    import pyarrow as pa

    names = [column.name for column in columns]
    for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
        values = [column.to_sent(sent) for column, sent in zip(columns, batch.columns, strict=True)]
        yield pa.RecordBatch.from_arrays(values, names)
