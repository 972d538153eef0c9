"""Conversion of job events into metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.events import DecisionRecorded, DecisionSettled, ExecutionState, JobStateChanged, VertexChanged
from penstock.metrics import instruments as i

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.decisions.log import Decision
    from penstock.events import JobStatusEvent, VertexSnapshot
    from penstock.metrics.instruments import Meter


class JobMetrics:
    """A listener of a job, which started at a time in seconds since the epoch, that reports its metrics to meters."""

    def __init__(self, meters: Sequence[Meter], started: float) -> None:
        self._meters = meters
        self._started = started
        self._is_running = False
        self._not_carried_out: set[int] = set()
        self._not_shuffled: dict[int, int] = {}

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Count events; part of `JobStatusListener`."""
        for event in events:
            match event:
                case JobStateChanged():
                    self._job(event)
                case VertexChanged(vertex) if vertex.state.is_terminal:
                    self._vertex(vertex)
                case DecisionRecorded(decision):
                    self._add(i.DECISIONS, 1, decision.kind)
                    self._not_shuffled[decision.id] = decision.displayed.not_shuffled or 0
                case DecisionSettled(decision):
                    self._settled(decision)
                case _:
                    pass

    def _job(self, event: JobStateChanged) -> None:
        if event.state.is_terminal:
            state = event.state.lower()
            self._add(i.JOBS, 1, state)
            self._add(i.JOB_DURATION, max(event.at - self._started, 0.0), state)
            self._add(i.NOT_SHUFFLED, sum(self._not_shuffled.values()))
            if self._is_running:
                self._add(i.RUNNING_JOBS, -1)
        elif not self._is_running:
            self._is_running = True
            self._add(i.RUNNING_JOBS, 1)

    def _vertex(self, vertex: VertexSnapshot) -> None:
        self._add(i.VERTICES, 1, vertex.state.lower())
        created, started = (vertex.timestamps.get(state) for state in (ExecutionState.CREATED, ExecutionState.RUNNING))
        if started is not None:
            self._add(i.VERTEX_DURATION, vertex.seconds)
            if created is not None:
                self._add(i.VERTEX_WAIT, max(started - created, 0.0))
        figures = {
            i.TASKS: vertex.tasks,
            i.READ: vertex.bytes_in,
            i.WRITTEN: vertex.bytes_out,
            i.ROWS_WRITTEN: vertex.rows_out,
        }
        for instrument, figure in figures.items():
            if figure is not None:
                self._add(instrument, figure)

    def _settled(self, decision: Decision) -> None:
        if "instead" in decision.outcome and decision.id not in self._not_carried_out:
            self._not_carried_out.add(decision.id)
            self._not_shuffled.pop(decision.id, None)
            self._add(i.NOT_CARRIED_OUT, 1, decision.kind)

    def _add(self, instrument: i.Instrument, figure: float, label: str = "") -> None:
        for meter in self._meters:
            meter.add(instrument, figure, label)
