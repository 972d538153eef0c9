"""Stores the events of a job in order, and delivers them to listeners."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.events.job_events import (
    ChangeRefused,
    DecisionRecorded,
    DecisionSettled,
    GraphChanged,
    JobStateChanged,
)

if TYPE_CHECKING:
    from penstock.decisions.log import Decision
    from penstock.events.job_events import JobStatusEvent
    from penstock.graph import GraphChange, RefusedChange

log = logging.getLogger("penstock")


class JobStatusListener(Protocol):
    """Listener that receives the events of a job."""

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Handle the events since the last call, in order; each event is delivered once."""


@dataclass(slots=True, eq=False)  # compared by identity: equal listeners are separate subscriptions
class _Subscription:
    listener: JobStatusListener
    delivered_count: int = 0


class JobEventBus:
    """The events of a job, in order, and their delivery to listeners. Thread-safe.

    `emit` only stores an event, so even a thread that holds locks may call it. `deliver` calls the listeners, on a
    single thread at a time. A listener that raises is removed, and the job continues. `name` names the job in the log.

    Events after the end of the job are dropped: they come from threads that could not be stopped.

    >>> bus = JobEventBus()
    >>> bus.emit(JobStateChanged(ExecutionState.RUNNING))
    >>> print(*(event.state for event in bus.events))
    RUNNING
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._events: list[JobStatusEvent] = []
        self._subscriptions: list[_Subscription] = []
        self._is_delivering = False
        self._has_ended = False
        self._condition = threading.Condition()  # guards all fields; notified when a delivery ends

    @property
    def events(self) -> list[JobStatusEvent]:
        """All events so far."""
        with self._condition:
            return list(self._events)

    def watch(self, listener: JobStatusListener) -> None:
        """Add a listener; its first delivery starts with all earlier events."""
        with self._condition:
            self._subscriptions.append(_Subscription(listener))

    def emit(self, event: JobStatusEvent) -> None:
        """Store an event for the next delivery."""
        with self._condition:
            if not self._has_ended:
                self._events.append(event)
                self._has_ended = isinstance(event, JobStateChanged) and event.state.is_terminal

    def on_decision_recorded(self, decision: Decision) -> None:
        """Emit an event for a recorded decision; part of `DecisionListener`."""
        self.emit(DecisionRecorded(decision, at=decision.at))

    def on_decision_settled(self, decision: Decision) -> None:
        """Emit an event for a decision whose outcome or estimate was updated; part of `DecisionListener`."""
        self.emit(DecisionSettled(decision))

    def on_graph_changed(self, change: GraphChange) -> None:
        """Emit an event for a change of the graph; part of `GraphListener`."""
        self.emit(GraphChanged(change))

    def on_change_refused(self, refused: RefusedChange) -> None:
        """Emit an event for a refused change; part of `GraphListener`."""
        self.emit(ChangeRefused(refused))

    def deliver(self, *, wait: bool = False) -> None:
        """Deliver new events to the listeners.

        If another thread is delivering, that thread delivers the new events too. Then this call returns at once, or,
        with `wait`, as soon as that delivery has ended.
        """
        with self._condition:
            if self._is_delivering:
                if wait:
                    self._condition.wait_for(lambda: not self._is_delivering)
                return
            self._is_delivering = True
        try:
            while (delivery := self._next_delivery()) is not None:
                subscription, events = delivery
                self._notify(subscription, events)
        except BaseException:
            self._stop_delivering()
            raise

    def _next_delivery(self) -> tuple[_Subscription, list[JobStatusEvent]] | None:
        """Return a subscription and its new events; if there are no new events, end the delivery and return None."""
        with self._condition:
            for subscription in self._subscriptions:
                if subscription.delivered_count < len(self._events):
                    events = self._events[subscription.delivered_count :]
                    subscription.delivered_count = len(self._events)
                    return subscription, events
            # Still under the lock of the check; otherwise, a `deliver` call in between would return without a delivery.
            self._stop_delivering()
            return None

    def _notify(self, subscription: _Subscription, events: list[JobStatusEvent]) -> None:
        try:
            subscription.listener.on_events(events)
        except Exception:
            log.warning("a listener of job %s raised an error and was removed", self._name, exc_info=True)
            with self._condition:
                self._subscriptions.remove(subscription)

    def _stop_delivering(self) -> None:
        with self._condition:  # the lock of a condition is reentrant
            self._is_delivering = False
            self._condition.notify_all()
