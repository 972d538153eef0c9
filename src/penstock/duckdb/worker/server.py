"""A process that computes queries for the driver, each as a single DuckDB query (`penstock.duckdb.process`).

It receives pickled functions from the driver, and ends when the driver closes the connection or dies.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duckdb.worker.columns import wire_schema
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.workspace import workspace

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.duckdb.worker.query import QueryFunction

SENT_BYTES = 4 << 20
"""Up to this size, the driver receives the rows themselves: Spark's exchange takes as long as their transfer."""
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
    """Compute the queries that arrive over the connection whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the driver, too, which decides what ends
    connection = Connection(int(sys.argv[1]))
    threading.Thread(target=_exit_with_driver, args=(connection.fileno(),), daemon=True).start()
    import pyarrow as pa  # noqa: F401

    import duckdb  # noqa: F401 - imported before the first query arrives

    while True:
        try:
            function: QueryFunction = pickle.loads(connection.recv_bytes())  # noqa: S301 - from the parent process
        except EOFError:
            return
        try:
            _send_rows(connection, function)
        except Exception as error:  # noqa: BLE001 - raised again in the driver
            connection.send(error if isinstance(error, NotNativeError) else repr(error))


def _send_rows(connection: Connection, function: QueryFunction) -> None:
    """Send the rows of a query; store many rows until the driver has read them."""
    import pyarrow as pa

    first: list[pa.RecordBatch] = []
    size = 0
    batches = function(iter(()))
    for batch in batches:
        first.append(batch)
        size += batch.nbytes
        if size > SENT_BYTES:
            break
    else:
        messages = tuple(batch.serialize().to_pybytes() for batch in first)
        connection.send(SentRows(messages, sum(batch.num_rows for batch in first)))
        return
    with workspace(0) as space:
        path = Path(space.directory) / _RESULT_FILE
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, wire_schema(function.columns)) as writer:
            for batch in (*first, *batches):
                writer.write_batch(batch)
        connection.send(StoredRows(str(path)))
        connection.recv_bytes()


def _exit_with_driver(descriptor: int) -> None:
    """End this process when the driver's end of the connection is closed, even while DuckDB computes."""
    poll = select.poll()
    poll.register(descriptor, 0)  # only a closed connection is reported
    poll.poll()
    os._exit(1)
