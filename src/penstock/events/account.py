"""The account of a job: its events in order, and those who listen."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.events.job_events import (
    ChangeRefused,
    DecisionMade,
    DecisionSettled,
    GraphChanged,
    JobStateChanged,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.decisions import Decision
    from penstock.events.job_events import JobStatusEvent
    from penstock.graph import GraphChange, RefusedChange

log = logging.getLogger("penstock")


class JobStatusListener(Protocol):
    """Hears what happens to a job."""

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Take what has happened since the last call, in order; each event comes once."""


@dataclass(slots=True, eq=False)  # equal listeners are two all the same
class _Hearing:
    """A listener, and how many events it has heard."""

    listener: JobStatusListener
    heard: int = 0


class JobAccount:
    """The events of one job, kept in order. Safe to use from several threads.

    An event is kept at the moment it happens, by `emit`, which never waits: so any thread may call it, with locks held.
    Listeners hear of it when a step is complete, by `deliver`, on one thread at a time. One that raises hears no more,
    and the job goes on.

    Nothing is kept after the end of the job: what was left behind and wakes up is no part of it.

    Parameters
    ----------
    name
        The job's name, for the log.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._events: list[JobStatusEvent] = []
        self._hearings: list[_Hearing] = []
        self._is_delivering = False
        self._has_ended = False
        self._changed = threading.Condition()

    @property
    def events(self) -> list[JobStatusEvent]:
        """All that has happened so far."""
        with self._changed:
            return list(self._events)

    def watch(self, listener: JobStatusListener) -> None:
        """Tell a listener of everything from the next delivery on; what has happened before comes first."""
        with self._changed:
            self._hearings.append(_Hearing(listener))

    def emit(self, event: JobStatusEvent) -> None:
        """Keep an event; listeners hear of it with the next delivery."""
        with self._changed:
            if not self._has_ended:
                self._events.append(event)
                self._has_ended = isinstance(event, JobStateChanged) and event.state.is_terminal

    def on_decision_made(self, decision: Decision) -> None:
        """Keep that something was decided; part of `DecisionListener`."""
        self.emit(DecisionMade(decision, at=decision.at))

    def on_decision_settled(self, decision: Decision) -> None:
        """Keep what came of a decision; part of `DecisionListener`."""
        self.emit(DecisionSettled(decision))

    def on_graph_changed(self, change: GraphChange) -> None:
        """Keep a change of the graph; part of `GraphListener`."""
        self.emit(GraphChanged(change))

    def on_change_refused(self, refused: RefusedChange) -> None:
        """Keep that a change was refused; part of `GraphListener`."""
        self.emit(ChangeRefused(refused))

    def deliver(self, *, wait: bool = False) -> None:
        """Tell listeners what they have not heard yet.

        Where another thread does so already, it goes on with what is new, and this one returns at once.

        Parameters
        ----------
        wait
            Whether to return only when all has been heard.
        """
        with self._changed:
            if self._is_delivering:
                if wait:
                    self._changed.wait_for(lambda: not self._is_delivering)
                return
            self._is_delivering = True
        try:
            while (news := self._news()) is not None:
                hearing, events = news
                self._tell(hearing, events)
        except BaseException:
            self._stop_delivering()
            raise

    def _news(self) -> tuple[_Hearing, list[JobStatusEvent]] | None:
        """Return a listener that has not heard all, with what is new to it; None where there is none any more."""
        with self._changed:
            for hearing in self._hearings:
                if hearing.heard < len(self._events):
                    events = self._events[hearing.heard :]
                    hearing.heard = len(self._events)
                    return hearing, events
            # Under the same lock: what is emitted from here on finds nobody delivering.
            self._stop_delivering()
            return None

    def _tell(self, hearing: _Hearing, events: list[JobStatusEvent]) -> None:
        try:
            hearing.listener.on_events(events)
        except Exception:
            log.warning("a listener of job %s raised, and hears no more", self._name, exc_info=True)
            with self._changed:
                self._hearings.remove(hearing)

    def _stop_delivering(self) -> None:
        with self._changed:  # a condition's lock may be taken again by the thread that has it
            self._is_delivering = False
            self._changed.notify_all()
