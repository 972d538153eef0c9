"""Listeners hear all that happens to a job, in order, once; whatever they do, the job goes on."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.decisions import Choice, DecisionKind, DecisionLog, NodeRef
from penstock.events import DecisionMade, DecisionSettled, ExecutionState, JobAccount, JobStateChanged
from tests.logged import messages

RUNNING = JobStateChanged(ExecutionState.RUNNING, 3)
ENDED = JobStateChanged(ExecutionState.FINISHED, 0)


class Hearing:
    """A listener that keeps what it heard, one list for each call, and does something first."""

    def __init__(self, call: Any = lambda: None) -> None:
        self.call = call
        self.heard: list[Any] = []

    def on_events(self, events: Any) -> None:
        self.call()
        self.heard.append(list(events))

    @property
    def all(self) -> Any:
        return [event for events in self.heard for event in events]


def states(count: Any) -> Any:
    return [JobStateChanged(ExecutionState.RUNNING, number) for number in range(count)]


def test_what_happens_between_two_deliveries_comes_at_once() -> None:
    account, listener = JobAccount(), Hearing()
    account.watch(listener)
    one, two, three = states(3)
    account.emit(one)
    account.emit(two)
    assert listener.heard == []
    account.deliver()
    account.deliver()
    account.emit(three)
    account.deliver()
    assert listener.heard == [[one, two], [three]]


def test_who_comes_late_hears_all() -> None:
    account, first, second = JobAccount(), Hearing(), Hearing()
    account.watch(first)
    one, two = states(2)
    account.emit(one)
    account.deliver()
    account.watch(second)
    account.emit(two)
    account.deliver()
    assert (first.heard, second.heard) == ([[one], [two]], [[one, two]])
    assert account.events == [one, two]


def test_nothing_comes_after_the_end() -> None:
    account, listener = JobAccount(), Hearing()
    account.watch(listener)
    for event in (RUNNING, ENDED, RUNNING):
        account.emit(event)
        account.deliver()
    assert listener.all == account.events == [RUNNING, ENDED]


def test_a_listener_that_raises_hears_no_more(caplog: pytest.LogCaptureFixture) -> None:
    account, bad, good = JobAccount("nightly"), Hearing(lambda: 1 / 0), Hearing()
    account.watch(bad)
    account.watch(good)
    for event in states(2):
        account.emit(event)
        account.deliver()
    assert (bad.heard, good.all) == ([], states(2))
    assert messages(caplog) == ["a listener of job nightly raised, and hears no more"]


class Equal(Hearing):
    """As a dataclass without fields of its own would be."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]


def test_of_two_equal_listeners_the_one_that_raises_hears_no_more() -> None:
    account, good, bad = JobAccount(), Equal(), Equal(lambda: 1 / 0)
    account.watch(good)
    account.watch(bad)
    for event in states(2):
        account.emit(event)
        account.deliver()
    assert (good.all, bad.heard) == (states(2), [])


def test_what_a_listener_does_itself_is_told_after_what_it_hears() -> None:
    account = JobAccount()
    one, two = states(2)
    listener = Hearing()
    listener.call = lambda: (account.emit(two), account.deliver()) if not listener.heard else None
    account.watch(listener)
    account.emit(one)
    account.deliver()
    assert listener.heard == [[one], [two]]


def test_nobody_waits_for_a_listener_that_hangs_but_who_wants_to() -> None:
    came, free = threading.Event(), threading.Event()
    account, listener = JobAccount(), Hearing(lambda: (came.set(), free.wait(10)))
    account.watch(listener)
    account.emit(RUNNING)
    hanging = threading.Thread(target=account.deliver)
    hanging.start()
    assert came.wait(10)
    account.emit(ENDED)
    account.deliver()  # returns, though nothing was heard yet
    assert listener.heard == []
    waiting = threading.Thread(target=account.deliver, kwargs={"wait": True})
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    free.set()
    for thread in (hanging, waiting):
        thread.join(10)
    assert listener.heard == [[RUNNING], [ENDED]]


def test_many_threads_tell_one_story() -> None:
    account, listener = JobAccount(), Hearing()
    account.watch(listener)

    def tell(number: Any) -> None:
        for step in range(200):
            account.emit(JobStateChanged(ExecutionState.RUNNING, 1000 * number + step))
            account.deliver()

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    account.deliver(wait=True)
    assert listener.all == account.events
    told = [event.pending_operators for event in listener.all]
    for number in range(8):
        assert [one for one in told if one // 1000 == number] == [1000 * number + step for step in range(200)]


@pytest.mark.parametrize("listeners", [0, 1])
def test_a_delivery_that_is_interrupted_can_be_repeated(listeners: int) -> None:
    def interrupt() -> None:
        account.emit(ENDED)
        if not heard:
            heard.append(True)
            raise KeyboardInterrupt

    account = JobAccount()
    heard: list[Any] = []
    for _ in range(listeners):
        account.watch(Hearing(interrupt))
    account.emit(RUNNING)
    if listeners:
        with pytest.raises(KeyboardInterrupt):
            account.deliver()
    account.deliver(wait=True)
    assert account.events == [RUNNING, ENDED][: 1 + listeners]


def test_decisions_are_told_when_they_are_made_and_settled() -> None:
    account = JobAccount()
    log = DecisionLog(account)
    made = log.record(Choice(DecisionKind.SKEW, NodeRef(3, "Join"), "left", "it is large"))
    log.settle(made.id, tasks=4, rows=None)
    log.settle(made.id, tasks=4)  # nothing new
    (settled,) = log
    assert account.events == [DecisionMade(made), DecisionSettled(settled)]
    assert (made.outcome, settled.outcome) == ({}, {"tasks": 4})


def test_ten_thousand_vertices_are_told_in_no_time() -> None:
    """Each event costs the same, however many there were; if it did not, this would take minutes."""
    begun = time.monotonic()
    account, listener = JobAccount(), Hearing()
    account.watch(listener)
    log = DecisionLog(account)
    for number in range(10_000):
        made = log.record(Choice(DecisionKind.SKEW, NodeRef(number, "Join"), "left", "it is large"))
        assert log.of((number,)) == [made]
        log.settle(made.id, tasks=4)
        account.emit(RUNNING)
        account.deliver()
    assert len(listener.all) == 30_000
    assert time.monotonic() - begun < 15
