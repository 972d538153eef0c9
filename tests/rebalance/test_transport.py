"""The transport between threads that act as tasks, over real sockets: handshakes, flow control, broken connections."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import LostConnectionError, RebalanceError
from penstock.rebalance import network, protocol
from penstock.rebalance.rendezvous import Peer
from penstock.rebalance.task import ExchangeSpec, _RunningTask

SECRET = b"s" * 32


def batches(start: Any, rows: Any, size: int = 1000) -> Any:
    return [
        pa.record_batch({"id": pa.array(range(i, min(i + size, start + rows)), pa.int64())})
        for i in range(start, start + rows, size)
    ]


class Stage:
    """Tasks as threads of this process."""

    def __init__(
        self, tasks: Any, spec: Any, function: Any = lambda received: received, rows: int = 2000, secrets: Any = None
    ) -> None:
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(tasks)]
        self.peers = [Peer("127.0.0.1", listener.getsockname()[1]) for listener in self.listeners]
        self.running = [_RunningTask(spec, i, tasks) for i in range(tasks)]
        self.secrets = secrets or [SECRET] * tasks
        self.outputs: list[list[Any]] = [[] for _ in range(tasks)]
        self.errors: list[BaseException | None] = [None] * tasks
        self.function, self.rows = function, rows
        self.threads = [threading.Thread(target=self.task, args=(i,), daemon=True) for i in range(tasks)]

    def task(self, index: Any) -> None:
        running = self.running[index]
        try:
            with running.open(self.listeners[index], self.secrets[index], self.peers):
                for batch in running.run(batches(index * self.rows, self.rows), self.function):
                    self.outputs[index] += batch.column(0).to_pylist()
        except BaseException as error:
            self.errors[index] = error

    def run(self, seconds: int = 30) -> Any:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join(seconds)
        assert not any(thread.is_alive() for thread in self.threads)
        return self

    def all_rows(self) -> Any:
        return sorted(row for output in self.outputs for row in output)


@pytest.mark.parametrize(
    ("tasks", "readers", "pointwise"), [(1, 1, False), (4, 4, False), (4, 2, False), (6, 2, True), (3, 3, True)]
)
def test_every_row_arrives_once(tasks: int, readers: int, pointwise: bool) -> None:
    stage = Stage(tasks, ExchangeSpec(readers, pointwise=pointwise)).run()
    assert stage.errors == [None] * tasks
    assert stage.all_rows() == list(range(tasks * 2000))
    assert not any(stage.outputs[readers:])


def test_few_writers_and_many_readers() -> None:
    stage = Stage(6, ExchangeSpec(6, writers=2, pointwise=True)).run()
    reports = [running.report() for running in stage.running]
    assert [[channel.reader for channel in report.channels] for report in reports] == [
        [0, 1, 2],
        [3, 4, 5],
        [],
        [],
        [],
        [],
    ]


@pytest.mark.alone
def test_a_slow_reader_gets_less() -> None:
    def slow_first(received: Any) -> Iterator[Any]:
        for batch in received:
            if threading.current_thread() is stage.threads[0]:
                time.sleep(batch.num_rows / 2000)
            else:
                time.sleep(batch.num_rows / 40_000)
            yield batch

    stage = Stage(4, ExchangeSpec(4), slow_first, rows=10_000)
    started = time.monotonic()
    stage.run()
    assert stage.all_rows() == list(range(40_000))
    assert len(stage.outputs[0]) < 4000
    assert time.monotonic() - started < 4  # a fourth of the rows would take it 5 s


def test_queued_bytes_are_limited_while_a_reader_pauses() -> None:
    rested = threading.Event()

    def rests(received: Any) -> Iterator[Any]:
        for batch in received:
            if threading.current_thread() is stage.threads[0] and not rested.is_set():
                time.sleep(2)
                rested.set()
            yield batch

    bound = 64 << 10
    stage = Stage(4, ExchangeSpec(4, max_queued_bytes=bound), rests, rows=50_000)
    stage.run()
    assert stage.all_rows() == list(range(200_000))
    assert max(running.report().largest_queue for running in stage.running) <= bound


def test_the_rest_is_consumed_if_the_function_ends_early() -> None:
    stage = Stage(3, ExchangeSpec(3), lambda received: iter([next(iter(received))])).run()
    assert stage.errors == [None] * 3
    assert sum(running.report().rows for running in stage.running) == 6000


def test_an_error_of_a_task_fails_all_tasks() -> None:
    def broken(received: Any) -> Iterator[Any]:
        for batch in received:
            if threading.current_thread() is stage.threads[1]:
                raise ValueError("no")
            yield batch

    stage = Stage(3, ExchangeSpec(3), broken, rows=100_000)
    stage.run()
    assert isinstance(stage.errors[1], ValueError)
    assert all(isinstance(error, LostConnectionError) for error in (stage.errors[0], stage.errors[2]))


def test_a_wrong_secret_fails_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "HANDSHAKE_SECONDS", 2.0)
    stage = Stage(3, ExchangeSpec(3), secrets=[SECRET, b"x" * 32, SECRET]).run()
    assert stage.errors[1] is not None


def stranger(peer: Any, content: bytes = b"") -> Any:
    sock = socket.create_connection((peer.host, peer.port))
    nonce = sock.recv(16)
    assert len(nonce) == 16
    sock.sendall(content)
    return sock


def test_other_connections_delay_no_task() -> None:
    stage = Stage(2, ExchangeSpec(2))
    with ExitStack() as stack:
        for thread in stage.threads[:1]:
            thread.start()
        time.sleep(0.3)
        silent = [
            stack.enter_context(socket.create_connection((stage.peers[0].host, stage.peers[0].port))) for _ in range(20)
        ]
        invalid = stack.enter_context(stranger(stage.peers[0], b"GET / HTTP/1.1\r\n" + bytes(64)))
        old = protocol.hello(SECRET, bytes(16), bytes(16), 1, 0)
        replay = stack.enter_context(stranger(stage.peers[0], old))
        for sock in (invalid, replay):
            sock.settimeout(5)
            with pytest.raises((ConnectionResetError, AssertionError)):
                assert sock.recv(64)
        started = time.monotonic()
        stage.threads[1].start()
        for thread in stage.threads:
            thread.join(20)
        assert time.monotonic() - started < 5
        assert silent
    assert stage.errors == [None, None]
    assert stage.all_rows() == list(range(4000))


def test_a_second_connection_of_the_same_writer_is_rejected() -> None:
    stage = Stage(2, ExchangeSpec(2), lambda received: (time.sleep(0.02) or batch for batch in received), rows=2000)
    for thread in stage.threads:
        thread.start()
    time.sleep(0.3)
    sock = socket.create_connection((stage.peers[0].host, stage.peers[0].port))
    nonce = sock.recv(16)
    sock.sendall(protocol.hello(SECRET, nonce, bytes(16), 1, 0))
    sock.settimeout(5)
    with pytest.raises((ConnectionResetError, AssertionError)):
        assert sock.recv(64)
    for thread in stage.threads:
        thread.join(30)
    assert stage.errors == [None, None]
    assert stage.all_rows() == list(range(4000))


@pytest.mark.parametrize("part", ["header", "body"])
def test_a_connection_cut_in_the_middle_of_a_frame(part: str) -> None:
    """A peer that knows the secret, but fails while it sends."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        peers = [Peer("127.0.0.1", end.getsockname()[1]) for end in (listener, other)]
        running = _RunningTask(ExchangeSpec(1), 0, 2)
        outcome: list[Any] = []

        def read() -> None:
            try:
                with running.open(listener, SECRET, peers):
                    outcome.extend(running.run([], lambda received: received))
            except RebalanceError as error:
                outcome.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        sock = socket.create_connection(("127.0.0.1", peers[0].port))
        nonce = sock.recv(16)
        sock.sendall(protocol.hello(SECRET, nonce, bytes(16), 1, 0))
        assert len(sock.recv(32)) == 32
        header = protocol.frame_header(protocol.FrameKind.SCHEMA, 0, 500)
        sock.sendall(header[:5] if part == "header" else header + bytes(100))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        thread.join(10)
        assert isinstance(outcome[-1], LostConnectionError)
        assert "writer 1" in str(outcome[-1])


@pytest.mark.thorough
def test_a_consumer_without_progress_times_out() -> None:
    def stuck(received: Any) -> Iterator[Any]:
        for batch in received:
            if threading.current_thread() is stage.threads[0]:
                time.sleep(3)
            yield batch

    stage = Stage(2, ExchangeSpec(2, idle_timeout=1.0), stuck, rows=64)
    stage.run()
    assert any("has waited 1 s for consumer" in str(error) for error in stage.errors), stage.errors
