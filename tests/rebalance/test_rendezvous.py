"""Tasks that meet at the driver, over real sockets: who is told what, and who is told nothing."""

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
    """Spark, as these tests play it: the tasks of attempt 0 have one figure, those of attempt 1 begin with a 1."""
    del stage, index
    return StageAttempt(task_attempt // 10, is_whole=True)


@pytest.fixture
def place() -> Any:
    return RendezvousServer("127.0.0.1", tenth, patience=5)


def at(place: Any, exchange: str = "x") -> Any:
    return Rendezvous("127.0.0.1", place.port, place.secret, exchange)


class Task(threading.Thread):
    def __init__(self, meeting: Any, index: Any, attempt: Any = None, tasks: int = 4, stage: int = 7) -> None:
        super().__init__(daemon=True)
        self.asked = stage, index if attempt is None else attempt, index, tasks, ("host", 1000 + index)
        self.meeting, self.told = meeting, "nothing yet"
        self.start()
        time.sleep(0.05)

    def run(self) -> None:
        try:
            self.told = self.meeting.meet(*self.asked)
        except RebalanceError as error:
            self.told = str(error)

    def answer(self) -> Any:
        self.join(10)
        assert not self.is_alive()
        return self.told


def answers(tasks: Any) -> Any:
    return [task.answer() for task in tasks]


def test_all_are_told_of_all_and_share_a_secret(place: Any) -> None:
    told = answers([Task(at(place), index) for index in (2, 0, 3, 1)])
    assert [peers for peers, _ in told] == [ALL] * 4
    assert len({secret for _, secret in told}) == 1


def test_every_attempt_has_a_secret_of_its_own(place: Any) -> None:
    first, second = (
        answers([Task(at(place), index, 10 * attempt + index) for index in range(4)]) for attempt in (0, 1)
    )
    assert first[0][1] != second[0][1]
    assert place.secret not in {first[0][1], second[0][1]}


def test_stages_do_not_mix(place: Any) -> None:
    one = [Task(at(place), index, tasks=2) for index in range(1)]
    other = [Task(at(place, "y"), index, tasks=2) for index in range(2)] + [
        Task(at(place), index, tasks=2, stage=8) for index in range(2)
    ]
    assert all(answers(other))
    assert one[0].is_alive()
    one.append(Task(at(place), 1, tasks=2))
    assert all(answers(one))


def test_attempts_of_a_stage_do_not_mix(place: Any) -> None:
    """A task of the first attempt still waits when the second begins; it had been taken for one of the second."""
    early = Task(at(place), 0, attempt=0)
    later = [Task(at(place), index, attempt=10 + index) for index in (1, 2, 3)]
    assert all(task.is_alive() for task in later)
    later.append(Task(at(place), 0, attempt=10))
    assert all(answers(later))
    assert early.is_alive()


def test_a_task_of_an_attempt_that_is_over() -> None:
    place = RendezvousServer("127.0.0.1", lambda stage, task_attempt, index: None)
    assert "a later attempt of the exchange has taken the place of task 2" in Task(at(place), 2).answer()


def test_a_part_of_a_stage() -> None:
    """What the other tasks gave is of an earlier attempt, in which rows had gone other ways."""
    place = RendezvousServer("127.0.0.1", lambda stage, task_attempt, index: StageAttempt(1, is_whole=False))
    assert "Spark runs 3 tasks of the rebalance, and not all of its stage" in Task(at(place), 0, tasks=3).answer()


def test_a_result_of_an_earlier_attempt_that_comes_while_tasks_wait() -> None:
    asked: list[int] = []

    def running(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
        del stage, task_attempt
        asked.append(index)
        return StageAttempt(1, is_whole=len(asked) <= 4)

    place = RendezvousServer("127.0.0.1", running)
    told = answers([Task(at(place), index) for index in range(4)])
    assert all("not all of its stage" in one for one in told)
    assert len(asked) == 5


def test_where_spark_does_not_tell_its_attempts_all_meet_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    def unknown(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
        raise RuntimeError("no such method")

    assert answers([Task(at(RendezvousServer("127.0.0.1", unknown)), index) for index in range(4)]) == [None] * 4
    assert "Spark does not tell which attempt of stage 7 runs" in caplog.text


def test_who_has_gone_is_not_counted(place: Any) -> None:
    with socket.create_connection(("127.0.0.1", place.port)) as sock:
        nonce = sock.recv(rendezvous.NONCE_BYTES, socket.MSG_WAITALL)
        gone = Caller("x", 7, 0, 0, 4, "nowhere", 1, "00")
        sock.sendall(rendezvous.sealed(place.secret, b"call", nonce, gone.body()))
        time.sleep(0.2)
    time.sleep(0.2)
    tasks = [Task(at(place), index) for index in (1, 2, 3)]
    assert all(task.is_alive() for task in tasks)
    told = answers([*tasks, Task(at(place), 0)])
    assert told[0][0] == ALL


@pytest.mark.alone
def test_where_one_does_not_come_all_meet_elsewhere() -> None:
    place = RendezvousServer("127.0.0.1", tenth, patience=0.5)
    assert answers([Task(at(place), index) for index in (0, 1, 2)]) == [None] * 3
    started = time.monotonic()
    assert Task(at(place), 3).answer() is None
    assert time.monotonic() - started < 0.4


def test_a_place_that_cannot_be_reached(place: Any) -> None:
    assert Task(replace(at(place), port=1), 0).answer() is None


@pytest.mark.parametrize("change", [{"secret": b"wrong" * 6}, {"secret": b""}])
def test_a_wrong_secret(place: Any, change: dict[str, Any]) -> None:
    assert Task(replace(at(place), **change), 0, tasks=1).answer() is None


def test_a_place_that_does_not_know_the_secret() -> None:
    """Who answers without the secret is not believed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = Task(Rendezvous("127.0.0.1", listener.getsockname()[1], b"secret", "x"), 0, tasks=1)
        sock, _ = listener.accept()
        with sock:
            sock.sendall(bytes(rendezvous.NONCE_BYTES))
            sock.recv(4096)
            sock.sendall(rendezvous.sealed(b"guess", b"answer", bytes(16), b'{"peers": [["evil", 1]], "salt": ""}'))
        assert task.answer() is None


def test_what_was_said_before_is_refused(place: Any) -> None:
    """A call recorded from the wire is of no use with another nonce."""

    def call(nonce_of: Any) -> Any:
        with socket.create_connection(("127.0.0.1", place.port)) as sock:
            nonce = sock.recv(rendezvous.NONCE_BYTES, socket.MSG_WAITALL)
            caller = Caller("x", 7, 0, 0, 1, "host", 1, "00" * 16)
            sock.sendall(rendezvous.sealed(place.secret, b"call", nonce_of(nonce), caller.body()))
            return sock.recv(4096)

    assert call(lambda nonce: nonce)
    assert not call(lambda _: bytes(rendezvous.NONCE_BYTES))


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200, b"\xff" * 400])
def test_strangers_hold_nobody_up(place: Any, said: Any) -> None:
    strangers = [socket.create_connection(("127.0.0.1", place.port)) for _ in range(20)]
    for stranger in strangers:
        stranger.sendall(said)
    assert all(answers([Task(at(place), index) for index in range(4)]))
    for stranger in strangers:
        stranger.close()


def test_many_idle_connections_keep_no_task_out(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "LIMIT", 16)
    with ExitStack() as stack:
        for _ in range(40):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", place.port)))
            idle.recv(rendezvous.NONCE_BYTES, socket.MSG_WAITALL)
        assert [peers for peers, _ in answers([Task(at(place), index) for index in range(4)])] == [ALL] * 4
        assert len(place._handshakes._writers) <= 16


def test_proven_connections_are_not_counted_as_strangers(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "LIMIT", 4)
    tasks = [Task(at(place), index, tasks=6) for index in range(6)]
    assert [len(peers) for peers, _ in answers(tasks)] == [6] * 6  # all six are connected until the last one comes
    assert not place._handshakes._writers


def test_attempts_that_were_given_up_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_server, "_MOST_GIVEN_UP", 4)
    place = RendezvousServer("127.0.0.1", tenth, patience=0.05)
    assert [Task(at(place, f"exchange {number}"), 0).answer() for number in range(10)] == [None] * 10
    assert [key.exchange for key in place._given_up] == [f"exchange {number}" for number in range(6, 10)]
    # A late task of a forgotten attempt does not wait for the others without end.
    assert Task(at(place, "exchange 0"), 1).answer() is None


def test_a_place_is_made_where_a_loop_runs() -> None:
    """As in a notebook."""

    async def cell() -> Any:
        return RendezvousServer("127.0.0.1", tenth)

    assert Task(at(asyncio.run(cell())), 0, tasks=1).answer()


def test_messages_that_are_too_long() -> None:
    with pytest.raises(RebalanceError, match="broken"):
        rendezvous.length_of(b"\xff\xff\xff\xff", rendezvous.LARGEST_CALL)
