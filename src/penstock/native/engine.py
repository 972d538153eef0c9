"""DuckDB as the steps of this room use it: one connection for each task, its errors those of `NotNativeError`."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.native.errors import NotNativeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.native.columns import Column

_BATCH_ROWS = 10_000
"""Rows of a batch of columns, as Spark's own ``spark.sql.execution.arrow.maxRecordsPerBatch``."""


@contextmanager
def connected(memory: int, threads: int = 1) -> Iterator[Any]:
    """Open a connection.

    Parameters
    ----------
    memory
        Bytes that it may use before it spills.
    threads
        How many threads compute.
    """
    import duckdb  # an executor may not have it: that is told of the whole application
    import pyarrow as pa

    pa.set_cpu_count(threads)
    with tempfile.TemporaryDirectory(prefix="penstock-duckdb-") as spill:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": threads,
            "memory_limit": f"{memory}B",
            "temp_directory": spill,
            "autoinstall_known_extensions": False,
        }
        try:
            with duckdb.connect(config=settings) as connection:
                yield connection
        except (duckdb.Error, pa.ArrowInvalid) as error:
            raise NotNativeError(str(error)) from error


def computed(connection: Any, sql: str, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a query, as they travel."""
    import pyarrow as pa

    names = [one.name for one in columns]
    for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
        values = [one.to_sent(given) for one, given in zip(columns, batch.columns, strict=True)]
        yield pa.RecordBatch.from_arrays(values, names)
