"""The task of an adaptive exchange: it writes its input to the readers; the tasks with the lowest indexes also read."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from penstock.errors import LostConnectionError, RebalanceError
from penstock.rebalance.channel_selector import ChannelCredit, LoadBasedChannelSelector
from penstock.rebalance.rendezvous import Peer, Rendezvous
from penstock.rebalance.transport import ReceivedBatch, Transport
from penstock.sizing.pointwise import readers_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator, BarrierTaskContext

    MapFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_GRACE_SECONDS = 3.0
"""Seconds until a lost connection fails a task, so that the peer's own error is reported first."""
MAX_QUEUED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """Parameters that are the same for all tasks of a stage.

    The first `readers` tasks read; if there are fewer tasks, all. The first `writers` tasks have rows; None if all do.
    `pointwise` says whether each writer sends to a few neighbouring readers only (rescale). `max_traverse_size` is how
    many readers a writer compares for each batch. `idle_timeout` is the number of seconds without progress of any
    reader after which a waiting writer fails. `max_queued_bytes` is the maximum of bytes queued at a reader, from all
    writers together. `tasks` is the number of tasks of the stage in Spark's plan, None if unknown; a job of Penstock
    may run fewer.
    """

    readers: int
    writers: int | None = None
    max_traverse_size: int = 4
    pointwise: bool = False
    idle_timeout: float = 1800.0
    max_queued_bytes: int = MAX_QUEUED_BYTES
    tasks: int | None = None

    def targets(self, writer: int, tasks: int) -> range:
        """Return the readers that a writer sends to."""
        writers = tasks if self.writers is None else self.writers
        if writer >= writers:
            return range(0)
        return readers_of(writer, writers, self.readers) if self.pointwise else range(self.readers)


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """The rows and bytes that a writer has sent to a reader."""

    writer: int
    reader: int
    rows: int
    bytes: int
    pace: float
    """The rows per second of the reader, as last measured by the writer."""


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    """Figures of a finished task.

    It consumed `rows` and `bytes`; at most `largest_queue` bytes were queued for it. It waited for rows for `waited`
    seconds, and could not write for `blocked` seconds because all readers were busy.
    """

    index: int
    rows: int
    bytes: int
    largest_queue: int
    waited: float
    blocked: float
    channels: tuple[ChannelReport, ...]


class ReportParam(AccumulatorParam["list[dict[str, object]]"]):
    """Concatenates the reports of tasks in an accumulator."""

    def zero(self, value: list[dict[str, object]]) -> list[dict[str, object]]:
        """Return an empty list."""
        del value
        return []

    def addInPlace(self, value1: list[dict[str, object]], value2: list[dict[str, object]]) -> list[dict[str, object]]:
        """Append the second list to the first, and return it."""
        value1.extend(value2)
        return value1


@dataclass(eq=False)
class ExchangeTask:
    """A function for ``DataFrame.mapInArrow``: runs a task of the barrier stage in its Python process."""

    spec: ExchangeSpec
    function: MapFunction
    reports: Accumulator[list[dict[str, object]]]
    rendezvous: Rendezvous

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the user's function over the rows that this task reads; yield its output."""
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        index = context.partitionId()
        host = context.getTaskInfos()[index].address.rpartition(":")[0]
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, 0), backlog=512, family=family) as listener:
            peers, secret = self._find_peers(context, (host, listener.getsockname()[1]))
            spec = replace(self.spec, readers=min(self.spec.readers, len(peers)))
            running = _RunningTask(spec, index, len(peers))
            with running.open(listener, secret, peers):
                try:
                    yield from running.run(batches, self.function)
                except LostConnectionError:
                    time.sleep(_GRACE_SECONDS)
                    raise
            self.reports.add([asdict(running.report()) | {"stage": context.stageId()}])

    def _find_peers(self, context: BarrierTaskContext, address: tuple[str, int]) -> tuple[list[Peer], bytes]:
        """Send this task's address to all tasks of this attempt; return their addresses, and the shared secret."""
        tasks, attempt, stage = len(context.getTaskInfos()), context.taskAttemptId(), context.stageId()
        peers_and_secret = self.rendezvous.exchange_addresses(stage, attempt, context.partitionId(), tasks, address)
        if peers_and_secret is None and tasks != self.spec.tasks:
            raise RebalanceError(
                f"{tasks} tasks of the rebalance run, and {self.spec.tasks or 'an unknown number'} were planned",
                cause="executors cannot connect to the driver, which knows whether these are all tasks of the stage",
                hint="let executors connect to the driver's host at any port, or use adaptive=False",
            )
        return peers_and_secret or _all_gather(context, address)


def _all_gather(context: BarrierTaskContext, address: tuple[str, int]) -> tuple[list[Peer], bytes]:
    """Return the addresses of all tasks, and a shared secret, by means of Spark's barrier.

    Tasks must not wait in a barrier anywhere else: if a peer failed meanwhile, Spark would end the executor.
    """
    messages = context.allGather(json.dumps([*address, os.urandom(32).hex()]))
    hosts, ports, salts = zip(*map(json.loads, messages), strict=True)
    return list(map(Peer, hosts, ports)), hashlib.sha256("".join(salts).encode()).digest()


class _RunningTask:
    """A running task: a separate thread writes its input to the readers, and the caller's thread reads."""

    def __init__(self, spec: ExchangeSpec, index: int, tasks: int) -> None:
        self._spec = spec
        self._index = index
        targets = [spec.targets(writer, tasks) for writer in range(tasks)]
        self._targets = list(targets[index])
        is_reader = index < spec.readers
        self._writers = [writer for writer, readers in enumerate(targets) if is_reader and index in readers]
        writer_counts = [sum(reader in readers for readers in targets) for reader in range(spec.readers)]
        max_channel_bytes = max(1, spec.max_queued_bytes // max([1, *writer_counts]))
        self._credits = [ChannelCredit(max_channel_bytes) for _ in self._targets]
        self._selector = LoadBasedChannelSelector(max(1, len(self._targets)), spec.max_traverse_size)
        self._last_progress = time.monotonic()
        self._blocked_seconds = self._waited_seconds = 0.0
        self._rows = self._bytes = self._largest_queue = 0
        # The schema of all batches of a writer: serializing it takes longer than choosing a channel, so it is cached.
        self._written_schema: bytes | None = None
        self._parsed_schemas: dict[bytes, pa.Schema] = {}

    def open(self, listener: socket.socket, secret: bytes, peers: list[Peer]) -> Transport:
        """Return the connections of the task, which are a context manager."""
        self._transport = Transport(listener, secret, self._index, peers, self._targets, self._writers, self._on_ack)
        return self._transport

    def run(self, batches: Iterable[pa.RecordBatch], function: MapFunction) -> Iterator[pa.RecordBatch]:
        """Write on another thread; yield the function's output over the rows that are read."""
        writer = threading.Thread(target=self._write, args=(batches,), name="penstock-writer", daemon=True)
        writer.start()
        received = self._read()
        yield from function(received)
        for _ in received:  # also acknowledge rows that the function has not read: writers wait for that
            pass
        self._wait_for(lambda: not writer.is_alive(), poll=0.05)

    def report(self) -> SubtaskReport:
        """Return the figures of the task."""
        channels = tuple(
            ChannelReport(self._index, reader, credit.rows_sent, credit.bytes_sent, round(credit.pace, 1))
            for reader, credit in zip(self._targets, self._credits, strict=True)
        )
        waited, blocked = round(self._waited_seconds, 3), round(self._blocked_seconds, 3)
        return SubtaskReport(self._index, self._rows, self._bytes, self._largest_queue, waited, blocked, channels)

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[pa.RecordBatch]:
        """Yield batches; a batch is acknowledged when the next is requested."""
        while True:
            started = time.monotonic()
            self._wait_for(lambda: bool(self._transport.inbox) or self._transport.all_writers_ended)
            self._waited_seconds += time.monotonic() - started
            with self._transport.changed:
                if not self._transport.inbox:
                    return
                self._largest_queue = max(self._largest_queue, sum(batch.size for batch in self._transport.inbox))
                received = self._transport.inbox.popleft()
            self._rows += received.rows
            self._bytes += received.size
            yield self._parse_batch(received)
            self._transport.acknowledge(received)

    def _parse_batch(self, received: ReceivedBatch) -> pa.RecordBatch:
        if received.schema is None:
            return received.payload
        import pyarrow as pa

        schema = self._parsed_schemas.get(received.schema)
        if schema is None:
            schema = self._parsed_schemas[received.schema] = pa.ipc.read_schema(pa.py_buffer(received.schema))
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
            self._transport.send_ends()
            self._wait_for_consumers(lambda: self._transport.all_ends_acknowledged)
        except BaseException as error:  # noqa: BLE001 - the task's main thread raises it
            self._transport.fail(error)

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        row_bytes = max(batch.nbytes / batch.num_rows, 1e-9)
        schema = self._written_schema = self._written_schema or batch.schema.serialize().to_pybytes()
        start = 0
        while start < batch.num_rows:
            channel = self._next_channel()
            credit = self._credits[channel]
            part = batch.slice(start, credit.next_rows(row_bytes))
            start += part.num_rows
            is_remote = self._targets[channel] != self._index
            payload = part.serialize() if is_remote else None
            size = payload.size if payload is not None else max(1, int(row_bytes * part.num_rows))
            with self._transport.changed:
                credit.on_sent(part.num_rows, size, time.monotonic())
            self._transport.send(channel, schema, payload, part.num_rows, size, part)

    def _next_channel(self) -> int:
        """Return the channel for the next batch; wait while all are full."""
        selected: list[int] = []

        def select() -> bool:
            channel = self._selector.select(self._credits)
            if channel is not None:
                selected.append(channel)
            return channel is not None

        started = time.monotonic()
        self._wait_for_consumers(select)
        self._blocked_seconds += time.monotonic() - started
        return selected[0]

    def _wait_for_consumers(self, condition: Callable[[], bool]) -> None:
        def is_done() -> bool:
            idle_seconds = time.monotonic() - max(self._last_progress, started)
            if condition():
                return True
            if idle_seconds > self._spec.idle_timeout:
                busy = [r for r, credit in zip(self._targets, self._credits, strict=True) if credit.batches_in_flight]
                readers, timeout = busy or self._transport.silent_readers, self._spec.idle_timeout
                consumers = ", ".join(map(str, readers))
                raise RebalanceError(
                    f"task {self._index} of the rebalance has waited {timeout:g} s for consumers: {consumers}",
                    cause="the function that consumes the rows has not read the next rows",
                    hint="if it may take this long, raise taskmanager.network.adaptive-partitioner.idle-timeout",
                )
            return False

        started = time.monotonic()
        self._wait_for(is_done)

    def _on_ack(self, channel: int) -> None:
        now = time.monotonic()
        self._last_progress = now
        self._credits[channel].on_ack(now)
