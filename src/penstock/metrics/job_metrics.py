"""Conversion of job events into metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.events import DecisionRecorded, DecisionSettled, ExecutionState, JobStateChanged, VertexChanged
from penstock.metrics import instruments

if TYPE_CHECKING:
    from penstock.decisions.log import Decision
    from penstock.events import JobStatusEvent, VertexSnapshot
    from penstock.metrics.instruments import Meter


class JobMetrics:
    """A listener that reports a job's metrics to meters; `started` is the job's start in seconds since the epoch."""

    def __init__(self, meters: Sequence[Meter], started: float) -> None:
        self._meters = meters
        self._started = started
        self._is_running = False  # whether RUNNING_JOBS counts the job
        self._not_carried_out: set[int] = set()  # ids of decisions
        self._not_shuffled: dict[int, int] = {}  # the bytes that each decision saves from being shuffled, by its id

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Update the metrics for events; part of `JobStatusListener`."""
        for event in events:
            match event:
                case JobStateChanged():
                    self._count_job(event)
                case VertexChanged(vertex) if vertex.state.is_terminal:
                    self._count_vertex(vertex)
                case DecisionRecorded(decision):
                    self._add(instruments.DECISIONS, 1, decision.kind)
                    self._not_shuffled[decision.id] = decision.displayed.not_shuffled or 0
                case DecisionSettled(decision):
                    self._count_outcome(decision)
                case _:
                    pass

    def _count_job(self, event: JobStateChanged) -> None:
        if event.state.is_terminal:
            state = event.state.lower()
            self._add(instruments.JOBS, 1, state)
            self._add(instruments.JOB_DURATION, max(event.at - self._started, 0.0), state)
            self._add(instruments.NOT_SHUFFLED, sum(self._not_shuffled.values()))
            if self._is_running:
                self._add(instruments.RUNNING_JOBS, -1)
        elif not self._is_running:
            self._is_running = True
            self._add(instruments.RUNNING_JOBS, 1)

    def _count_vertex(self, vertex: VertexSnapshot) -> None:
        self._add(instruments.VERTICES, 1, vertex.state.lower())
        created, started = (vertex.timestamps.get(state) for state in (ExecutionState.CREATED, ExecutionState.RUNNING))
        if started is not None:
            self._add(instruments.VERTEX_DURATION, vertex.seconds)
            if created is not None:
                self._add(instruments.VERTEX_WAIT, max(started - created, 0.0))
        values = {
            instruments.TASKS: vertex.tasks,
            instruments.READ: vertex.bytes_in,
            instruments.WRITTEN: vertex.bytes_out,
            instruments.ROWS_WRITTEN: vertex.rows_out,
        }
        for instrument, value in values.items():
            if value is not None:
                self._add(instrument, value)

    def _count_outcome(self, decision: Decision) -> None:
        # The key "instead" marks a fallback; later updates of the outcome contain it too, and are not counted again.
        if "instead" in decision.outcome and decision.id not in self._not_carried_out:
            self._not_carried_out.add(decision.id)
            self._not_shuffled.pop(decision.id, None)
            self._add(instruments.NOT_CARRIED_OUT, 1, decision.kind)

    def _add(self, instrument: instruments.Instrument, value: float, label: str = "") -> None:
        for meter in self._meters:
            meter.add(instrument, value, label)
