"""The DuckDB connection of a Spark task; errors of DuckDB become `NotNativeError`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker.workspace import workspace

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.duckdb.worker.columns import Column

BATCH_ROWS = 10_000
"""Rows per output batch, the default of ``spark.sql.execution.arrow.maxRecordsPerBatch``."""
OLDEST, NEWEST = (1, 5), (2, 0)
"""The oldest and newest supported releases of DuckDB (major, minor). Results of other releases may differ."""
UNSUPPORTED = "is not supported"
"""Part of the error that an executor with an unsupported release reports."""
NOT_NATIVE = "penstock: not computed by DuckDB: "
"""Prefix of the errors after which Spark computes the rows."""

_SPARE: list[Any] = []
"""At most one open connection that no query has used."""


class NotNativeError(Exception):
    """DuckDB cannot compute the rows, so Spark must."""

    def __init__(self, reason: str) -> None:
        super().__init__(NOT_NATIVE + " ".join(reason.split()))


def unsupported_reason(version: str) -> str | None:
    """Return why a release of DuckDB cannot be used, None if it is supported.

    >>> unsupported_reason("1.5.6")
    >>> unsupported_reason("1.1.3")
    'DuckDB 1.1.3 is not supported: install 1.5 to 2.0'
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if OLDEST <= numbers <= NEWEST:
        return None
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    return f"DuckDB {version} {UNSUPPORTED}: install {oldest} to {newest}"


@contextmanager
def open_connection(
    memory: int, threads: int = 1, files: Iterable[str] = (), budget: int | None = None, *, reads_arrow: bool = False
) -> Iterator[Any]:
    """Open a connection that may read only the listed files and write only to its spill directory.

    Raises `NotNativeError` if the release of DuckDB is not supported, or if DuckDB or Arrow fails. `memory` is the
    requested bytes of memory. `budget` is the bytes that all tasks of the executor may use together, None for no limit.

    `reads_arrow` says whether the queries read registered Arrow tables. If so, filters, including those that a join
    derives from its other side, are not pushed down: DuckDB 1.5 lets Arrow evaluate them, and Arrow compares NaN
    differently from SQL and reads an infinite date as 1 January of the year 1. (A top-n sort could still push a filter
    down, but no query of exchanged rows has such a sort.)
    """
    import pyarrow as pa

    import duckdb  # may be missing on an executor, which is reported for the whole application

    reason = unsupported_reason(duckdb.__version__)
    if reason is not None:
        raise NotNativeError(reason)
    with workspace(memory, budget) as space:
        settings = {
            "memory_limit": f"{space.memory}B",
            "temp_directory": space.directory,
            "max_temp_directory_size": f"{space.max_spilled_bytes}B",
        }
        try:
            with _SPARE.pop() if _SPARE else _new_connection() as connection:
                connection.execute(f"SET threads = {threads}")
                for name, value in settings.items():
                    connection.execute(f"SET {name} = {quote_literal(value)}")
                paths = ", ".join(map(quote_literal, files))
                connection.execute(f"SET allowed_paths = [{paths}]")
                if reads_arrow:
                    connection.execute("SET disabled_optimizers = 'filter_pushdown,join_filter_pushdown'")
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
                yield connection
        except (duckdb.Error, pa.ArrowInvalid) as error:
            raise NotNativeError(str(error)) from error


def open_spare_connection() -> None:
    """Open the next connection of this process in advance, while no query waits: it takes 15 to 20 ms."""
    if not _SPARE:
        _SPARE.append(_new_connection())


def _new_connection() -> Any:
    """Open a connection to an empty database of its own, which uses a single thread until it gets its settings."""
    import duckdb

    return duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )


def quote_literal(text: str) -> str:
    """Return a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def query_batches(
    connection: Any, sql: str, columns: Sequence[Column], batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query, in batches of at most `batch_rows`."""
    import pyarrow as pa

    schema = pa.schema([(column.name, column.arrow_type()) for column in columns])
    for batch in connection.sql(sql).to_arrow_reader(batch_rows):
        values = [array.cast(field.type) for field, array in zip(schema, batch.columns, strict=True)]
        yield pa.RecordBatch.from_arrays(values, schema=schema)
