"""Tasks that call the driver's rendezvous over real sockets, and the answers that they get."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from penstock import handshakes
from penstock.errors import RebalanceError
from penstock.rebalance import rendezvous, rendezvous_server
from penstock.rebalance.rendezvous import Caller, Rendezvous
from penstock.rebalance.rendezvous_server import RendezvousServer
from penstock.rebalance.transport import Peer
from penstock.spark.barrier import StageAttempt

ALL = [Peer("host", 1000 + index) for index in range(4)]


def tenth(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
    """Stand in for Spark: task attempts 0 to 9 belong to stage attempt 0, 10 to 19 to stage attempt 1."""
    del stage, index
    return StageAttempt(task_attempt // 10, is_whole=True)


@pytest.fixture
def server() -> Any:
    return RendezvousServer("127.0.0.1", tenth, timeout=5)


def at(server: Any, exchange: str = "x") -> Any:
    return Rendezvous("127.0.0.1", server.port, server.secret, exchange)


class Task(threading.Thread):
    def __init__(self, rendezvous: Any, index: Any, attempt: Any = None, tasks: int = 4, stage: int = 7) -> None:
        super().__init__(daemon=True)
        self.call = stage, index if attempt is None else attempt, index, tasks, ("host", 1000 + index)
        self.rendezvous, self.outcome = rendezvous, "no answer yet"
        self.start()
        time.sleep(0.05)

    def run(self) -> None:
        try:
            self.outcome = self.rendezvous.meet(*self.call)
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
    assert server.secret not in {first[0][1], second[0][1]}


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
    server = RendezvousServer("127.0.0.1", lambda stage, task_attempt, index: StageAttempt(1, is_whole=False))
    assert "Spark runs 3 tasks of the rebalance, and not all of its stage" in Task(at(server), 0, tasks=3).answer()


def test_a_task_of_an_earlier_attempt_that_finishes_while_others_wait() -> None:
    calls: list[int] = []

    def running(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
        del stage, task_attempt
        calls.append(index)
        return StageAttempt(1, is_whole=len(calls) <= 4)

    server = RendezvousServer("127.0.0.1", running)
    messages = answers([Task(at(server), index) for index in range(4)])
    assert all("not all of its stage" in message for message in messages)
    assert len(calls) == 5


def test_without_the_attempts_of_spark_tasks_use_its_barrier(caplog: pytest.LogCaptureFixture) -> None:
    def unknown(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
        raise RuntimeError("no such method")

    assert answers([Task(at(RendezvousServer("127.0.0.1", unknown)), index) for index in range(4)]) == [None] * 4
    assert "Spark does not report which attempt of stage 7 runs" in caplog.text


def test_a_disconnected_task_is_not_counted(server: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        nonce = sock.recv(rendezvous.NONCE_BYTES, socket.MSG_WAITALL)
        gone = Caller("x", 7, 0, 0, 4, "nowhere", 1, "00")
        sock.sendall(rendezvous.seal(server.secret, b"call", nonce, gone.body()))
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
    assert Task(replace(at(server), port=1), 0).answer() is None


@pytest.mark.parametrize("change", [{"secret": b"wrong" * 6}, {"secret": b""}])
def test_a_wrong_secret(server: Any, change: dict[str, Any]) -> None:
    assert Task(replace(at(server), **change), 0, tasks=1).answer() is None


def test_a_server_without_the_secret_is_not_trusted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = Task(Rendezvous("127.0.0.1", listener.getsockname()[1], b"secret", "x"), 0, tasks=1)
        sock, _ = listener.accept()
        with sock:
            sock.sendall(bytes(rendezvous.NONCE_BYTES))
            sock.recv(4096)
            sock.sendall(rendezvous.seal(b"guess", b"answer", bytes(16), b'{"peers": [["evil", 1]], "salt": ""}'))
        assert task.answer() is None


def test_a_replayed_call_is_rejected(server: Any) -> None:
    """A recorded call is invalid with another nonce."""

    def call(nonce_of: Any) -> Any:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            nonce = sock.recv(rendezvous.NONCE_BYTES, socket.MSG_WAITALL)
            caller = Caller("x", 7, 0, 0, 1, "host", 1, "00" * 16)
            sock.sendall(rendezvous.seal(server.secret, b"call", nonce_of(nonce), caller.body()))
            return sock.recv(4096)

    assert call(lambda nonce: nonce)
    assert not call(lambda _: bytes(rendezvous.NONCE_BYTES))


@pytest.mark.parametrize("content", [b"", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200, b"\xff" * 400])
def test_other_connections_delay_no_task(server: Any, content: Any) -> None:
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for stranger in strangers:
        stranger.sendall(content)
    assert all(answers([Task(at(server), index) for index in range(4)]))
    for stranger in strangers:
        stranger.close()


def test_many_idle_connections_exclude_no_task(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "LIMIT", 16)
    with ExitStack() as stack:
        for _ in range(40):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            idle.recv(rendezvous.NONCE_BYTES, socket.MSG_WAITALL)
        assert [peers for peers, _ in answers([Task(at(server), index) for index in range(4)])] == [ALL] * 4
        assert len(server._handshakes._writers) <= 16


def test_proven_connections_are_not_counted_as_strangers(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "LIMIT", 4)
    tasks = [Task(at(server), index, tasks=6) for index in range(6)]
    assert [len(peers) for peers, _ in answers(tasks)] == [6] * 6  # all six are connected until the last one comes
    assert not server._handshakes._writers


def test_only_recent_abandoned_attempts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_server, "_MAX_ABANDONED", 4)
    server = RendezvousServer("127.0.0.1", tenth, timeout=0.05)
    assert [Task(at(server, f"exchange {number}"), 0).answer() for number in range(10)] == [None] * 10
    assert [key.exchange for key in server._abandoned] == [f"exchange {number}" for number in range(6, 10)]
    # A late task of a forgotten attempt does not wait forever.
    assert Task(at(server, "exchange 0"), 1).answer() is None


def test_a_server_can_be_created_where_a_loop_runs() -> None:
    """As in a notebook."""

    async def cell() -> Any:
        return RendezvousServer("127.0.0.1", tenth)

    assert Task(at(asyncio.run(cell())), 0, tasks=1).answer()


def test_messages_that_are_too_long() -> None:
    with pytest.raises(RebalanceError, match="broken"):
        rendezvous.read_length(b"\xff\xff\xff\xff", rendezvous.LARGEST_CALL)
