"""What each task of an adaptive exchange runs: it writes its own input to the readers, and is one of them itself."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from penstock.errors import LostConnectionError, RebalanceError
from penstock.rebalance.credit import ChannelCredit, CreditLimits
from penstock.rebalance.record_writer import AdaptiveLoadBasedRecordWriter, ChannelLoad
from penstock.rebalance.transport import Peer, Received, Transport
from penstock.sizing.pointwise import readers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark import Accumulator, BarrierTaskContext

    from penstock.rebalance.rendezvous import Rendezvous

    MapFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_GRACE_SECONDS = 3.0
READER_BYTES = 64 << 20
"""What may wait at a reader, from all writers together."""


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """What all tasks of a stage know.

    Parameters
    ----------
    readers
        How many tasks read: the first ones, or all where there are fewer.
    writers
        How many tasks have rows: the first ones. As many as there are tasks, if None.
    max_traverse_size
        How many channels are compared.
    pointwise
        Whether each writer sends to a few neighbouring readers only (rescale).
    idle_timeout
        Seconds without any progress of a consumer after which a writer that waits for it fails.
    reader_bytes
        What may wait at a reader.
    tasks
        How many tasks the stage was planned with; it may have fewer in a job. None if that is unknown.
    """

    readers: int
    writers: int | None = None
    max_traverse_size: int = 4
    pointwise: bool = False
    idle_timeout: float = 1800.0
    reader_bytes: int = READER_BYTES
    tasks: int | None = None

    def targets(self, writer: int, tasks: int) -> range:
        """Return the readers that a task writes to."""
        writers = tasks if self.writers is None else self.writers
        if writer >= writers:
            return range(0)
        return readers_of(writer, writers, self.readers) if self.pointwise else range(self.readers)


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """What went through a channel.

    Parameters
    ----------
    writer, reader
        Its ends.
    rows, bytes
        What was sent.
    pace
        Rows a second that the reader took, as the writer saw it at the end.
    """

    writer: int
    reader: int
    rows: int
    bytes: int
    pace: float


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    """What a task did.

    Parameters
    ----------
    index
        Which task.
    rows, bytes
        What it consumed.
    largest_queue
        The most bytes that waited for it.
    waited
        Seconds it waited for rows.
    blocked
        Seconds it could not write, as all readers were busy.
    channels
        What it wrote.
    """

    index: int
    rows: int
    bytes: int
    largest_queue: int
    waited: float
    blocked: float
    channels: tuple[ChannelReport, ...]


class ReportParam(AccumulatorParam["list[dict[str, object]]"]):
    """Brings reports of tasks to the driver."""

    def zero(self, value: list[dict[str, object]]) -> list[dict[str, object]]:
        """Return no report."""
        del value
        return []

    def addInPlace(self, value1: list[dict[str, object]], value2: list[dict[str, object]]) -> list[dict[str, object]]:
        """Return all reports."""
        value1.extend(value2)
        return value1


class ExchangeTask:
    """One task of the stage; made in its Python process.

    Parameters
    ----------
    spec
        What all tasks know.
    function
        The user's.
    reports
        Takes a report of the task once it has finished.
    rendezvous
        Where the tasks meet.
    """

    def __init__(
        self,
        spec: ExchangeSpec,
        function: MapFunction,
        reports: Accumulator[list[dict[str, object]]],
        rendezvous: Rendezvous,
    ) -> None:
        self._spec = spec
        self._rendezvous = rendezvous
        self._function = function
        self._reports = reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run; what the user's function gives is the task's output."""
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        index = context.partitionId()
        host = context.getTaskInfos()[index].address.rpartition(":")[0]
        with socket.create_server((host, 0), backlog=512, family=_family(host)) as listener:
            peers, secret = self._introduce(context, (host, listener.getsockname()[1]))
            spec = replace(self._spec, readers=min(self._spec.readers, len(peers)))
            exchange = _Running(spec, index, len(peers))
            with exchange.open(listener, secret, peers):
                try:
                    yield from exchange.run(batches, self._function)
                except LostConnectionError:
                    time.sleep(
                        _GRACE_SECONDS
                    )  # the task at the other end has failed first: its error is the one to show
                    raise
            self._reports.add([asdict(exchange.report()) | {"stage": context.stageId()}])

    def _introduce(self, context: BarrierTaskContext, address: tuple[str, int]) -> tuple[list[Peer], bytes]:
        """Tell all tasks of this attempt where this one listens; return all of them, and their common secret."""
        tasks = len(context.getTaskInfos())
        met = self._rendezvous.meet(context.stageId(), context.taskAttemptId(), context.partitionId(), tasks, address)
        if met is None and tasks != self._spec.tasks:
            raise RebalanceError.perhaps_in_part(tasks, self._spec.tasks)
        return met or _gathered(context, address)


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]


def _gathered(context: BarrierTaskContext, address: tuple[str, int]) -> tuple[list[Peer], bytes]:
    """Find the others by Spark's barrier.

    This is the only place where tasks may wait in one: where a peer may fail, Spark would end the executor.
    """
    told = context.allGather(json.dumps([*address, os.urandom(32).hex()]))
    found = [json.loads(one) for one in told]
    secret = hashlib.sha256("".join(one[2] for one in found).encode()).digest()
    return [Peer(one[0], one[1]) for one in found], secret


class _Running:
    """A task while it runs: one thread writes, the caller's reads."""

    def __init__(self, spec: ExchangeSpec, index: int, tasks: int) -> None:
        self._spec = spec
        self._index = index
        self._tasks = tasks
        self._targets = list(spec.targets(index, tasks))
        is_reader = index < spec.readers
        self._sources = [w for w in range(tasks) if is_reader and index in spec.targets(w, tasks)]
        writers = max(
            1, max((sum(r in spec.targets(w, tasks) for w in range(tasks)) for r in range(spec.readers)), default=1)
        )
        limits = CreditLimits(max(1, spec.reader_bytes // writers))
        self._credits = [ChannelCredit(limits) for _ in self._targets]
        self._chooser = AdaptiveLoadBasedRecordWriter(max(1, len(self._targets)), spec.max_traverse_size)
        self._last_progress = time.monotonic()
        self._blocked = self._waited = 0.0
        self._rows = self._bytes = self._largest_queue = 0
        # All batches of a writer have one schema; to write or read it takes longer than to choose a channel.
        self._own_schema: bytes | None = None
        self._schemas: dict[bytes, pa.Schema] = {}

    def open(self, listener: socket.socket, secret: bytes, peers: list[Peer]) -> Transport:
        """Return the connections, still to be entered."""
        self._transport = Transport(listener, secret, self._index, peers, self._targets, self._sources, self._on_ack)
        return self._transport

    def run(self, batches: Iterable[pa.RecordBatch], function: MapFunction) -> Iterator[pa.RecordBatch]:
        """Write in another thread; yield what the function makes of what is read."""
        writer = threading.Thread(target=self._write, args=(batches,), name="penstock-writer", daemon=True)
        writer.start()
        received = self._read()
        yield from function(received)
        for _ in received:  # a function that ends early: its rows are consumed all the same
            pass
        self._wait_for(lambda: not writer.is_alive(), poll=0.05)

    def report(self) -> SubtaskReport:
        """Return what was done."""
        channels = tuple(
            ChannelReport(self._index, reader, credit.rows_sent, credit.bytes_sent, round(credit.pace, 1))
            for reader, credit in zip(self._targets, self._credits, strict=True)
        )
        return SubtaskReport(
            self._index,
            self._rows,
            self._bytes,
            self._largest_queue,
            round(self._waited, 3),
            round(self._blocked, 3),
            channels,
        )

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[pa.RecordBatch]:
        """Yield batches; one is acknowledged when the next is asked for."""
        while True:
            started = time.monotonic()
            self._wait_for(lambda: bool(self._transport.inbox) or self._transport.all_ended)
            self._waited += time.monotonic() - started
            with self._transport.changed:
                if not self._transport.inbox:
                    return
                self._largest_queue = max(self._largest_queue, sum(one.size for one in self._transport.inbox))
                received = self._transport.inbox.popleft()
            self._rows += received.rows
            self._bytes += received.size
            yield self._batch_of(received)
            self._transport.acknowledge(received)

    def _batch_of(self, received: Received) -> pa.RecordBatch:
        if received.schema is None:
            return received.payload
        import pyarrow as pa

        schema = self._schemas.get(received.schema)
        if schema is None:
            schema = self._schemas[received.schema] = pa.ipc.read_schema(pa.py_buffer(received.schema))
        return pa.ipc.read_record_batch(pa.py_buffer(received.payload), schema)

    def _wait_for(self, condition: Callable[[], bool], poll: float = 1.0) -> None:
        with self._transport.changed:
            while True:
                if self._transport.error is not None:
                    raise self._transport.error
                if condition():
                    return
                self._transport.changed.wait(poll)

    # -- writing -------------------------------------------------------------------------------------------------

    def _write(self, batches: Iterable[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                if batch.num_rows:
                    self._write_batch(batch)
            self._transport.end()
            self._wait_for_consumers(lambda: self._transport.all_ends_known)
        except BaseException as error:  # noqa: BLE001 - the task's main thread raises it
            self._transport.fail(error)

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        row_bytes = max(batch.nbytes / batch.num_rows, 1e-9)
        schema = self._own_schema = self._own_schema or batch.schema.serialize().to_pybytes()
        start = 0
        while start < batch.num_rows:
            place = self._next_channel()
            credit = self._credits[place]
            part = batch.slice(start, credit.next_rows(row_bytes))
            start += part.num_rows
            remote = self._targets[place] != self._index
            payload = part.serialize() if remote else None
            size = payload.size if payload is not None else max(1, int(row_bytes * part.num_rows))
            with self._transport.changed:
                credit.on_sent(part.num_rows, size, time.monotonic())
            self._transport.send(place, schema, payload, part.num_rows, size, part)

    def _next_channel(self) -> int:
        """Return the channel for the next batch; wait while all are full."""
        found: list[int] = []

        def choose() -> bool:
            loads = [ChannelLoad(credit.buffers, credit.bytes, credit.full) for credit in self._credits]
            chosen = self._chooser.choose(loads)
            if chosen is not None:
                found.append(chosen)
            return chosen is not None

        started = time.monotonic()
        self._wait_for_consumers(choose)
        self._blocked += time.monotonic() - started
        return found[0]

    def _wait_for_consumers(self, condition: Callable[[], bool]) -> None:
        def met_or_late() -> bool:
            idle = time.monotonic() - max(self._last_progress, started)
            if condition():
                return True
            if idle > self._spec.idle_timeout:
                waiting = [r for r, credit in zip(self._targets, self._credits, strict=True) if credit.buffers]
                raise RebalanceError.idle(self._index, waiting or self._transport.unheard, self._spec.idle_timeout)
            return False

        started = time.monotonic()
        self._wait_for(met_or_late)

    def _on_ack(self, place: int) -> None:
        now = time.monotonic()
        self._last_progress = now
        self._credits[place].on_ack(now)
