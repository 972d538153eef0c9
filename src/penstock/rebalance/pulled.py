"""What a consumer runs that takes rows piece by piece: its task serves them to it, a batch whenever it asks.

This takes the place of the barrier stage where Spark cannot run one, see `penstock.rebalance.task`.
"""

from __future__ import annotations

import socket
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import RebalanceError
from penstock.rebalance.task import SubtaskReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark import Accumulator

    from penstock.rebalance.task import MapFunction

_ASK = b"n"
_BATCH, _END, _FAILED = b"b", b"e", b"x"
_CONNECT_SECONDS = 20.0


class PullTask:
    """One consumer; made in its Python process. A function for ``DataFrame.mapInArrow``, of one row.

    Parameters
    ----------
    function
        The user's.
    reports
        Takes a report of the task once it has finished.
    """

    def __init__(self, function: MapFunction, reports: Accumulator[list[dict[str, object]]]) -> None:
        self._function = function
        self._reports = reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run; what the user's function gives is the task's output."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        given = iter(batches)
        (ticket,) = next(given).to_pylist()
        with Pieces(ticket["host"], ticket["port"], ticket["secret"]) as pieces:
            yield from self._function(pieces)
            pieces.check()
        report = asdict(pieces.report(context.partitionId())) | {"stage": context.stageId()}
        self._reports.add([report])
        for _ in given:
            pass


class Pieces:
    """The rows of a consumer, as an iterator of batches. Used as a context.

    Parameters
    ----------
    host, port, secret
        Where its task serves them on this machine, and by what the consumer is known.
    """

    def __init__(self, host: str, port: int, secret: bytes) -> None:
        self._address = (host, port)
        self._secret = secret
        self._rows = self._bytes = self._largest = 0
        self._waited = 0.0
        self._is_over = False
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
        """Return the next batch, which is taken now.

        Raises
        ------
        RebalanceError
            If the task cannot give it. From then on, every call raises what was raised.
        """
        self.check()
        started = time.monotonic()
        try:
            batch = self._taken()
        except BaseException as error:  # the user's function may catch it, and rows would be missing
            self._error = error
            raise
        finally:
            self._waited += time.monotonic() - started
        if batch is None:
            raise StopIteration
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self._largest = max(self._largest, batch.nbytes)
        return batch

    def check(self) -> None:
        """Raise what kept a batch from being taken, if anything did."""
        if self._error is not None:
            raise self._error

    def report(self, index: int) -> SubtaskReport:
        """Return what was done; no more than a batch has ever waited."""
        return SubtaskReport(index, self._rows, self._bytes, self._largest, round(self._waited, 3), 0.0, ())

    def _taken(self) -> pa.RecordBatch | None:
        """Return the next batch, None after the last one."""
        if self._is_over:
            return None
        self._sock.sendall(_ASK)
        status = self._stream.read(1)
        if status == _END:
            self._is_over = True
            return None
        if status != _BATCH:
            raise RebalanceError.no_piece(self._cause(status))
        return self._reader.read_next_batch()

    def _cause(self, status: bytes) -> str:
        if status != _FAILED:
            return "the task has ended"
        length = int.from_bytes(self._stream.read(4))
        return str(self._stream.read(length), "utf-8", "replace")
