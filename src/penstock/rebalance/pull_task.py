"""The Python process of a consumer, which pulls chunks of rows from the JVM of its task, a batch at a time.

Adaptive exchanges that do not run as barrier stages use this process; `penstock.rebalance.task` is for barrier stages.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import RebalanceError
from penstock.rebalance.task import SubtaskReport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator

    from penstock.rebalance.task import MapFunction

_REQUEST_BATCH = b"n"
_BATCH, _END, _FAILED = b"b", b"e", b"x"
"""The first byte of an answer: a batch follows, there are no more rows, or an error message follows."""
_CONNECT_SECONDS = 20.0


@dataclass(eq=False)
class PullTask:
    """A function for ``DataFrame.mapInArrow``: runs a consumer in its Python process.

    Its input is a single row, the ticket: the address where the JVM of its task serves the rows, and an access secret.
    """

    function: MapFunction
    reports: Accumulator[list[dict[str, object]]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the user's function over the pulled batches; yield its output."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        tickets = iter(batches)
        (ticket,) = next(tickets).to_pylist()
        with PulledBatches(ticket["host"], ticket["port"], ticket["secret"]) as pulled:
            yield from self.function(pulled)
            pulled.check()
        report = asdict(pulled.report(context.partitionId())) | {"stage": context.stageId()}
        self.reports.add([report])
        for _ in tickets:  # Spark reuses the Python process only if its input was read to the end
            pass


class PulledBatches:
    """Iterator over the batches of a consumer, and a context manager; the parameters come from its ticket."""

    def __init__(self, host: str, port: int, secret: bytes) -> None:
        self._address = (host, port)
        self._secret = secret
        self._rows = self._bytes = self._max_bytes = 0
        self._waited = 0.0
        self._ended = False
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        import pyarrow as pa

        self._sock = socket.create_connection(self._address, timeout=_CONNECT_SECONDS)
        self._sock.settimeout(None)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(self._secret)
        self._stream: Any = self._sock.makefile("rb")
        self._reader = pa.ipc.open_stream(self._stream)
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._sock.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        """Pull and return the next batch.

        Raise `RebalanceError` if the task cannot provide it. All further calls raise the same error.
        """
        self.check()
        started = time.monotonic()
        try:
            batch = self._pull()
        except BaseException as error:  # for `check`: rows would be missing if the user's function caught it
            self._error = error
            raise
        finally:
            self._waited += time.monotonic() - started
        if batch is None:
            raise StopIteration
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self._max_bytes = max(self._max_bytes, batch.nbytes)
        return batch

    def check(self) -> None:
        """Raise the error of an earlier pull, if there was one."""
        if self._error is not None:
            raise self._error

    def report(self, index: int) -> SubtaskReport:
        """Return the report of the task; its `largest_queue` is the largest batch, as only a single batch is queued."""
        return SubtaskReport(index, self._rows, self._bytes, self._max_bytes, round(self._waited, 3), 0.0, channels=())

    def _pull(self) -> pa.RecordBatch | None:
        """Return the next batch; None after the last batch."""
        if self._ended:
            return None
        self._sock.sendall(_REQUEST_BATCH)
        status = self._stream.read(1)
        if status == _END:
            self._ended = True
            return None
        if status != _BATCH:
            cause = "the task has ended"
            if status == _FAILED:
                cause = str(self._stream.read(int.from_bytes(self._stream.read(4))), "utf-8", "replace")
            raise RebalanceError("a consumer of the rebalance cannot get its next rows", cause=cause)
        return self._reader.read_next_batch()
