"""Listeners receive every event of a job once and in order, and cannot disturb the job."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.decisions.log import Choice, DecisionKind, DecisionLog, NodeRef
from penstock.events import DecisionRecorded, DecisionSettled, ExecutionState, JobEventBus, JobStateChanged
from tests.support.logged import messages

RUNNING = JobStateChanged(ExecutionState.RUNNING, 3)
ENDED = JobStateChanged(ExecutionState.FINISHED, 0)


class RecordingListener:
    """Listener that runs `call`, then stores the events, one list for each delivery."""

    def __init__(self, call: Any = lambda: None) -> None:
        self.call = call
        self.batches: list[Any] = []

    def on_events(self, events: Any) -> None:
        self.call()
        self.batches.append(list(events))

    @property
    def events(self) -> Any:
        return [event for batch in self.batches for event in batch]


def states(count: Any) -> Any:
    return [JobStateChanged(ExecutionState.RUNNING, number) for number in range(count)]


def test_events_between_two_deliveries_arrive_together() -> None:
    bus, listener = JobEventBus(), RecordingListener()
    bus.watch(listener)
    first, second, third = states(3)
    bus.emit(first)
    bus.emit(second)
    assert listener.batches == []
    bus.deliver()
    bus.deliver()
    bus.emit(third)
    bus.deliver()
    assert listener.batches == [[first, second], [third]]


def test_a_late_listener_receives_all_events() -> None:
    bus, early, late = JobEventBus(), RecordingListener(), RecordingListener()
    bus.watch(early)
    first, second = states(2)
    bus.emit(first)
    bus.deliver()
    bus.watch(late)
    bus.emit(second)
    bus.deliver()
    assert (early.batches, late.batches) == ([[first], [second]], [[first, second]])
    assert bus.events == [first, second]


def test_events_after_the_end_are_dropped() -> None:
    bus, listener = JobEventBus(), RecordingListener()
    bus.watch(listener)
    for event in (RUNNING, ENDED, RUNNING):
        bus.emit(event)
        bus.deliver()
    assert listener.events == bus.events == [RUNNING, ENDED]


def test_a_listener_that_raises_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    bus, bad, good = JobEventBus("nightly"), RecordingListener(lambda: 1 / 0), RecordingListener()
    bus.watch(bad)
    bus.watch(good)
    for event in states(2):
        bus.emit(event)
        bus.deliver()
    assert (bad.batches, good.events) == ([], states(2))
    assert messages(caplog) == ["a listener of job nightly raised an error and was removed"]


class Equal(RecordingListener):
    """Listener that equals all others of its class, as a dataclass without fields does."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]


def test_a_listener_that_raises_is_removed_by_identity() -> None:
    bus, good, bad = JobEventBus(), Equal(), Equal(lambda: 1 / 0)
    bus.watch(good)
    bus.watch(bad)
    for event in states(2):
        bus.emit(event)
        bus.deliver()
    assert (good.events, bad.batches) == (states(2), [])


def test_events_that_a_listener_emits_are_delivered_afterwards() -> None:
    bus = JobEventBus()
    first, second = states(2)
    listener = RecordingListener()
    listener.call = lambda: (bus.emit(second), bus.deliver()) if not listener.batches else None
    bus.watch(listener)
    bus.emit(first)
    bus.deliver()
    assert listener.batches == [[first], [second]]


def test_only_a_waiting_delivery_blocks_on_a_listener_that_hangs() -> None:
    entered, free = threading.Event(), threading.Event()
    bus, listener = JobEventBus(), RecordingListener(lambda: (entered.set(), free.wait(10)))
    bus.watch(listener)
    bus.emit(RUNNING)
    hanging = threading.Thread(target=bus.deliver)
    hanging.start()
    assert entered.wait(10)
    bus.emit(ENDED)
    bus.deliver()  # returns although nothing is delivered yet
    assert listener.batches == []
    waiting = threading.Thread(target=bus.deliver, kwargs={"wait": True})
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    free.set()
    for thread in (hanging, waiting):
        thread.join(10)
    assert listener.batches == [[RUNNING], [ENDED]]


def test_events_of_many_threads_keep_their_order() -> None:
    bus, listener = JobEventBus(), RecordingListener()
    bus.watch(listener)

    def emit_all(number: Any) -> None:
        for step in range(200):
            bus.emit(JobStateChanged(ExecutionState.RUNNING, 1000 * number + step))
            bus.deliver()

    threads = [threading.Thread(target=emit_all, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bus.deliver(wait=True)
    assert listener.events == bus.events
    counts = [event.pending_operators for event in listener.events]
    for number in range(8):
        assert [count for count in counts if count // 1000 == number] == [1000 * number + step for step in range(200)]


@pytest.mark.parametrize("listeners", [0, 1])
def test_a_delivery_that_is_interrupted_can_be_repeated(listeners: int) -> None:
    def interrupt() -> None:
        bus.emit(ENDED)
        if not interruptions:
            interruptions.append(True)
            raise KeyboardInterrupt

    bus = JobEventBus()
    interruptions: list[Any] = []
    for _ in range(listeners):
        bus.watch(RecordingListener(interrupt))
    bus.emit(RUNNING)
    if listeners:
        with pytest.raises(KeyboardInterrupt):
            bus.deliver()
    bus.deliver(wait=True)
    assert bus.events == [RUNNING, ENDED][: 1 + listeners]


def test_events_of_decisions() -> None:
    bus = JobEventBus()
    log = DecisionLog(bus)
    recorded = log.record(Choice(DecisionKind.SKEW, NodeRef(3, "Join"), "left", "it is large"))
    log.settle(recorded.id, tasks=4, rows=None)
    log.settle(recorded.id, tasks=4)  # nothing new
    (settled,) = log
    assert bus.events == [DecisionRecorded(recorded), DecisionSettled(settled)]
    assert (recorded.outcome, settled.outcome) == ({}, {"tasks": 4})


def test_ten_thousand_vertices_take_seconds() -> None:
    """The cost of an event is constant; if it grew with the number of events, this would take minutes."""
    begun = time.monotonic()
    bus, listener = JobEventBus(), RecordingListener()
    bus.watch(listener)
    log = DecisionLog(bus)
    for number in range(10_000):
        recorded = log.record(Choice(DecisionKind.SKEW, NodeRef(number, "Join"), "left", "it is large"))
        assert log.of((number,)) == [recorded]
        log.settle(recorded.id, tasks=4)
        bus.emit(RUNNING)
        bus.deliver()
    assert len(listener.events) == 30_000
    assert time.monotonic() - begun < 15
