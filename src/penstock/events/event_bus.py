"""The events of a job in order, and their delivery to listeners."""

from __future__ import annotations

import logging
import threading
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
    from collections.abc import Sequence

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
    delivered: int = 0


class JobEventBus:
    """The events of a job, stored in order. Thread-safe.

    `emit` stores an event and never blocks, so any thread may call it, also while it holds locks. `deliver` calls the
    listeners, on a single thread at a time. A listener that raises is removed, and the job continues.

    Events after the end of the job are dropped: they come from threads that were left behind.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._events: list[JobStatusEvent] = []
        self._subscriptions: list[_Subscription] = []
        self._is_delivering = False
        self._has_ended = False
        self._changed = threading.Condition()

    @property
    def events(self) -> list[JobStatusEvent]:
        """All events so far."""
        with self._changed:
            return list(self._events)

    def watch(self, listener: JobStatusListener) -> None:
        """Add a listener; the next delivery starts with all earlier events."""
        with self._changed:
            self._subscriptions.append(_Subscription(listener))

    def emit(self, event: JobStatusEvent) -> None:
        """Store an event for the next delivery."""
        with self._changed:
            if not self._has_ended:
                self._events.append(event)
                self._has_ended = isinstance(event, JobStateChanged) and event.state.is_terminal

    def on_decision_recorded(self, decision: Decision) -> None:
        """Emit an event for a recorded decision; part of `DecisionListener`."""
        self.emit(DecisionRecorded(decision, at=decision.at))

    def on_decision_settled(self, decision: Decision) -> None:
        """Emit an event for a settled decision; part of `DecisionListener`."""
        self.emit(DecisionSettled(decision))

    def on_graph_changed(self, change: GraphChange) -> None:
        """Emit an event for a change of the graph; part of `GraphListener`."""
        self.emit(GraphChanged(change))

    def on_change_refused(self, refused: RefusedChange) -> None:
        """Emit an event for a refused change; part of `GraphListener`."""
        self.emit(ChangeRefused(refused))

    def deliver(self, *, wait: bool = False) -> None:
        """Deliver new events to the listeners; with `wait`, return only when all are delivered.

        If another thread is delivering, that thread continues with the new events, and this call returns at once.
        """
        with self._changed:
            if self._is_delivering:
                if wait:
                    self._changed.wait_for(lambda: not self._is_delivering)
                return
            self._is_delivering = True
        try:
            while (undelivered := self._undelivered()) is not None:
                subscription, events = undelivered
                self._notify(subscription, events)
        except BaseException:
            self._stop_delivering()
            raise

    def _undelivered(self) -> tuple[_Subscription, list[JobStatusEvent]] | None:
        """Return a subscription with its new events; None, after ending the delivery, if there are no new events."""
        with self._changed:
            for subscription in self._subscriptions:
                if subscription.delivered < len(self._events):
                    events = self._events[subscription.delivered :]
                    subscription.delivered = len(self._events)
                    return subscription, events
            # Under the same lock: an event that is emitted from here on starts a new delivery.
            self._stop_delivering()
            return None

    def _notify(self, subscription: _Subscription, events: list[JobStatusEvent]) -> None:
        try:
            subscription.listener.on_events(events)
        except Exception:
            log.warning("a listener of job %s raised an error and is removed", self._name, exc_info=True)
            with self._changed:
                self._subscriptions.remove(subscription)

    def _stop_delivering(self) -> None:
        with self._changed:  # the lock of a condition is reentrant
            self._is_delivering = False
            self._changed.notify_all()
