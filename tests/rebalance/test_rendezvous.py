"""Tasks that call the driver's rendezvous over real sockets, and the answers that they get."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from penstock.base import channel
from penstock.base.channel import NONCE_BYTES, ServerAddress
from penstock.errors import RebalanceError
from penstock.rebalance import rendezvous_server
from penstock.rebalance.rendezvous import Caller, Peer, Rendezvous
from penstock.rebalance.rendezvous_server import RendezvousServer
from penstock.spark.run.barrier import StageAttempt

ALL = [Peer("host", 1000 + index) for index in range(4)]


def tenth(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
    """Stand in for Spark: task attempts 0 to 9 belong to stage attempt 0, 10 to 19 to stage attempt 1."""
    del stage, index
    return StageAttempt(task_attempt // 10, runs_all_tasks=True)


@pytest.fixture
def server() -> Any:
    return RendezvousServer("127.0.0.1", tenth, timeout=5)


def at(server: Any, exchange: str = "x") -> Any:
    return Rendezvous(address_of(server), exchange)


def address_of(server: RendezvousServer) -> ServerAddress:
    return ServerAddress("127.0.0.1", server.channel_server.port, server.channel_server.secret)


def hello(secret: bytes, server_nonce: bytes, nonce: bytes) -> bytes:
    """Return a task's part of the handshake."""
    return nonce + channel.prove(secret, b"task", server_nonce, nonce)


class Task(threading.Thread):
    def __init__(self, rendezvous: Any, index: Any, attempt: Any = None, tasks: int = 4, stage: int = 7) -> None:
        super().__init__(daemon=True)
        self.call = stage, index if attempt is None else attempt, index, tasks, ("host", 1000 + index)
        self.rendezvous, self.outcome = rendezvous, "no answer yet"
        self.start()
        time.sleep(0.05)

    def run(self) -> None:
        try:
            self.outcome = self.rendezvous.exchange_addresses(*self.call)
        except RebalanceError as error:
            self.outcome = str(error)

    def answer(self) -> Any:
        self.join(10)
        assert not self.is_alive()
        return self.outcome


def answers(tasks: Any) -> Any:
    return [task.answer() for task in tasks]


def test_all_tasks_get_all_addresses_and_share_a_secret(server: Any) -> None:
    results = answers([Task(at(server), index) for index in (2, 0, 3, 1)])
    assert [peers for peers, _ in results] == [ALL] * 4
    assert len({secret for _, secret in results}) == 1


def test_every_attempt_has_its_own_secret(server: Any) -> None:
    first, second = (
        answers([Task(at(server), index, 10 * attempt + index) for index in range(4)]) for attempt in (0, 1)
    )
    assert first[0][1] != second[0][1]
    assert server.channel_server.secret not in {first[0][1], second[0][1]}


def test_stages_do_not_mix(server: Any) -> None:
    waiting = [Task(at(server), index, tasks=2) for index in range(1)]
    complete = [Task(at(server, "y"), index, tasks=2) for index in range(2)] + [
        Task(at(server), index, tasks=2, stage=8) for index in range(2)
    ]
    assert all(answers(complete))
    assert waiting[0].is_alive()
    waiting.append(Task(at(server), 1, tasks=2))
    assert all(answers(waiting))


def test_attempts_of_a_stage_do_not_mix(server: Any) -> None:
    """A task of the first attempt that still waits must not be counted for the second."""
    early = Task(at(server), 0, attempt=0)
    later = [Task(at(server), index, attempt=10 + index) for index in (1, 2, 3)]
    assert all(task.is_alive() for task in later)
    later.append(Task(at(server), 0, attempt=10))
    assert all(answers(later))
    assert early.is_alive()


def test_a_task_of_an_earlier_attempt() -> None:
    server = RendezvousServer("127.0.0.1", lambda stage, task_attempt, index: None)
    assert "a later attempt of the exchange has replaced task 2" in Task(at(server), 2).answer()


def test_a_part_of_a_stage() -> None:
    """The other tasks belong to an earlier attempt, in which rows were distributed differently."""
    server = RendezvousServer("127.0.0.1", lambda stage, task_attempt, index: StageAttempt(1, runs_all_tasks=False))
    assert "Spark reruns only 3 tasks of the rebalance, not its whole stage" in Task(at(server), 0, tasks=3).answer()


def test_a_task_of_an_earlier_attempt_that_finishes_while_others_wait() -> None:
    calls: list[int] = []

    def running(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
        del stage, task_attempt
        calls.append(index)
        return StageAttempt(1, runs_all_tasks=len(calls) <= 4)

    server = RendezvousServer("127.0.0.1", running)
    messages = answers([Task(at(server), index) for index in range(4)])
    assert all("not its whole stage" in message for message in messages)
    assert len(calls) == 5


def test_without_the_attempts_of_spark_tasks_use_its_barrier(caplog: pytest.LogCaptureFixture) -> None:
    def unknown(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
        raise RuntimeError("no such method")

    assert answers([Task(at(RendezvousServer("127.0.0.1", unknown)), index) for index in range(4)]) == [None] * 4
    assert "Spark does not report which attempt of stage 7 runs" in caplog.text


def test_a_disconnected_task_is_not_counted(server: Any) -> None:
    with closing(address_of(server).open(5)) as gone:
        gone.send(Caller("x", 7, 0, 0, 4, "nowhere", 1).body())
        time.sleep(0.2)
    time.sleep(0.2)
    tasks = [Task(at(server), index) for index in (1, 2, 3)]
    assert all(task.is_alive() for task in tasks)
    results = answers([*tasks, Task(at(server), 0)])
    assert results[0][0] == ALL


@pytest.mark.alone
def test_if_a_task_is_missing_all_use_the_barrier_of_spark() -> None:
    server = RendezvousServer("127.0.0.1", tenth, timeout=0.5)
    assert answers([Task(at(server), index) for index in (0, 1, 2)]) == [None] * 3
    started = time.monotonic()
    assert Task(at(server), 3).answer() is None
    assert time.monotonic() - started < 0.4


def test_a_server_that_cannot_be_reached(server: Any) -> None:
    assert Task(replace(at(server), server=replace(address_of(server), port=1)), 0).answer() is None


@pytest.mark.parametrize("secret", [b"wrong" * 6, b""])
def test_a_wrong_secret(server: Any, secret: bytes) -> None:
    wrong = replace(at(server), server=replace(address_of(server), secret=secret))
    assert Task(wrong, 0, tasks=1).answer() is None


def test_a_server_without_the_secret_is_not_trusted() -> None:
    evil = b'{"peers": [["evil", 1]], "salt": ""}'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = ServerAddress("127.0.0.1", listener.getsockname()[1], b"secret")
        task = Task(Rendezvous(address, "x"), 0, tasks=1)
        sock, _ = listener.accept()
        with sock:
            sock.sendall(bytes(NONCE_BYTES))
            nonce = sock.recv(4096)[:NONCE_BYTES]
            sock.sendall(channel.prove(b"guess", b"driver", bytes(NONCE_BYTES), nonce))
            sock.sendall(channel.create_seals(b"guess", bytes(NONCE_BYTES), nonce)[1].seal(evil))
        assert task.answer() is None


def test_a_replayed_call_is_rejected(server: Any) -> None:
    """A recorded handshake and call are invalid with another nonce of the server."""
    secret, nonce = server.channel_server.secret, bytes(range(NONCE_BYTES))

    def call(nonce_of: Any) -> Any:
        with socket.create_connection(("127.0.0.1", server.channel_server.port)) as sock:
            server_nonce = nonce_of(sock.recv(NONCE_BYTES, socket.MSG_WAITALL))
            message = channel.create_seals(secret, server_nonce, nonce)[0].seal(
                Caller("x", 7, 0, 0, 1, "host", 1).body()
            )
            sock.sendall(hello(secret, server_nonce, nonce) + message)
            return sock.recv(4096)

    assert call(lambda server_nonce: server_nonce)
    assert not call(lambda _: bytes(NONCE_BYTES))


@pytest.mark.parametrize("content", [b"", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200, b"\xff" * 400])
def test_other_connections_delay_no_task(server: Any, content: Any) -> None:
    strangers = [socket.create_connection(("127.0.0.1", server.channel_server.port)) for _ in range(20)]
    for stranger in strangers:
        stranger.sendall(content)
    assert all(answers([Task(at(server), index) for index in range(4)]))
    for stranger in strangers:
        stranger.close()


def test_many_idle_connections_exclude_no_task(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_UNAUTHENTICATED", 16)
    with ExitStack() as stack:
        for _ in range(40):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.channel_server.port)))
            idle.recv(NONCE_BYTES, socket.MSG_WAITALL)
        assert [peers for peers, _ in answers([Task(at(server), index) for index in range(4)])] == [ALL] * 4
        assert len(server.channel_server._unauthenticated) <= 16


def test_proven_connections_are_not_counted_as_strangers(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_UNAUTHENTICATED", 4)
    tasks = [Task(at(server), index, tasks=6) for index in range(6)]
    assert [len(peers) for peers, _ in answers(tasks)] == [6] * 6  # all six are connected until the last one comes
    assert not server.channel_server._unauthenticated


def test_only_recent_abandoned_attempts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_server, "_MAX_ABANDONED", 4)
    server = RendezvousServer("127.0.0.1", tenth, timeout=0.05)
    assert [Task(at(server, f"exchange {number}"), 0).answer() for number in range(10)] == [None] * 10
    assert [exchange for exchange, _, _ in server._abandoned] == [f"exchange {number}" for number in range(6, 10)]
    # A late task of a forgotten attempt does not wait forever.
    assert Task(at(server, "exchange 0"), 1).answer() is None


def test_a_server_can_be_created_where_a_loop_runs() -> None:
    """As in a notebook."""

    async def cell() -> Any:
        return RendezvousServer("127.0.0.1", tenth)

    assert Task(at(asyncio.run(cell())), 0, tasks=1).answer()
