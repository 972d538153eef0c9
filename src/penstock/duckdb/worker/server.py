"""A process that computes queries for the driver, each as a single DuckDB query (`penstock.duckdb.process`).

It receives pickled functions from the driver, and ends when the driver closes the connection or dies.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duckdb.worker.columns import wire_schema
from penstock.duckdb.worker.engine import NotNativeError, open_spare_connection
from penstock.duckdb.worker.workspace import workspace

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.duckdb.worker.query import QueryFunction

_ROW_BYTES, _VALUE_BYTES = 16, 8
"""Bytes of a row in the JVM, and of each of its values, beside the bytes in Arrow."""
_RESULT_FILE = "rows.arrow"


@dataclass(frozen=True, slots=True)
class SentRows:
    """The rows of a query as Arrow messages in the wire format, without their schema; `count` is their number."""

    batches: tuple[bytes, ...]
    count: int


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a query in an Arrow file; a function for ``DataFrame.mapInArrow`` over a single row."""

    path: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the rows."""
        import pyarrow as pa

        with pa.memory_map(self.path) as file, pa.ipc.open_stream(file) as reader:
            yield from reader
        for _ in batches:
            pass


def main() -> None:
    """Compute the queries that arrive over a connection; the arguments are two descriptors, see `QueryProcess`."""
    connection, lifeline = Connection(int(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_exit_with_driver, args=(lifeline,), daemon=True).start()
    import pyarrow as pa  # noqa: F401 - imported before the first query arrives

    while True:
        try:
            with suppress(Exception):  # the query opens a connection, and its error is the reply
                open_spare_connection()
            function, limit = pickle.loads(connection.recv_bytes())  # noqa: S301 - from the parent process
        except EOFError:
            return
        with ExitStack() as until_sent:
            try:
                reply: SentRows | StoredRows | NotNativeError | str = _rows(function, limit, until_sent)
            except Exception as error:  # noqa: BLE001 - raised again in the driver
                reply = error if isinstance(error, NotNativeError) else repr(error)
            connection.send(reply)
            if isinstance(reply, StoredRows):
                connection.recv_bytes()  # the driver has read the rows


def _rows(function: QueryFunction, limit: int, until_sent: ExitStack) -> SentRows | StoredRows:
    """Compute a query; more than `limit` bytes in the JVM are stored until `until_sent` is closed."""
    import pyarrow as pa

    first: list[pa.RecordBatch] = []
    size = 0
    batches = function(iter(()))
    for batch in batches:
        first.append(batch)
        size += batch.nbytes + batch.num_rows * (_ROW_BYTES + _VALUE_BYTES * batch.num_columns)
        if size > limit and not function.may_be_large:
            raise NotNativeError("it returns many rows, and Spark exchanges none for it")
        if size > limit:
            break
    else:
        messages = tuple(batch.serialize().to_pybytes() for batch in first)
        return SentRows(messages, sum(batch.num_rows for batch in first))
    path = Path(until_sent.enter_context(workspace(0)).directory) / _RESULT_FILE
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, wire_schema(function.columns)) as writer:
        for batch in (*first, *batches):
            writer.write_batch(batch)
    return StoredRows(str(path))


def _exit_with_driver(lifeline: int) -> None:
    """End this process when the driver's end of a pipe is closed, even while DuckDB computes."""
    os.read(lifeline, 1)
    os._exit(1)
