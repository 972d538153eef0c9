"""The conversion of job events into metrics."""

from __future__ import annotations

from typing import Any

from penstock.decisions.log import Decision, DecisionKind, Explanation, NodeRef
from penstock.events import (
    DecisionRecorded,
    DecisionSettled,
    ExecutionState,
    JobStateChanged,
    VertexChanged,
    VertexSnapshot,
)
from penstock.graph import JobVertex
from penstock.metrics.job_metrics import JobMetrics

NODE = NodeRef(1, "Join")


class Figures:
    """A meter that collects values by instrument and label."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], list[float]] = {}

    def add(self, instrument: Any, figure: float, label: str = "") -> None:
        self.all.setdefault((instrument.name.removeprefix("penstock."), label), []).append(figure)


def figures(*events: Any) -> dict[tuple[str, str], list[float]]:
    meter = Figures()
    JobMetrics([meter], started=100.0).on_events(events)
    return meter.all


def vertex(state: ExecutionState, **details: Any) -> VertexChanged:
    job_vertex = JobVertex("v1", "Scan -> Calc", (1, 2), (), None, None)
    return VertexChanged(VertexSnapshot(job_vertex, state, 4, **details))


def decision(number: int, saved: int | None = None, **outcome: str) -> Decision:
    explanation = Explanation("users is broadcast", "an option", not_shuffled=saved)
    return Decision(DecisionKind.BROADCAST, NODE, "left", "it is small", {}, explanation, id=number, outcome=outcome)


def test_a_job() -> None:
    values = figures(
        JobStateChanged(ExecutionState.RUNNING, at=101.0),
        JobStateChanged(ExecutionState.RUNNING, at=102.0),  # reported again
        JobStateChanged(ExecutionState.FINISHED, at=107.5),
    )
    assert values == {
        ("jobs.running", ""): [1, -1],
        ("jobs", "finished"): [1],
        ("job.duration", "finished"): [7.5],
        ("not_shuffled", ""): [0],
    }


def test_a_job_that_never_ran() -> None:
    values = figures(JobStateChanged(ExecutionState.CANCELED, at=100.5))
    assert ("jobs.running", "") not in values
    assert values["jobs", "canceled"] == [1]


def test_vertices() -> None:
    times = {ExecutionState.CREATED: 10.0, ExecutionState.RUNNING: 12.0, ExecutionState.FINISHED: 15.0}
    metrics = {"tasks": 4, "bytes_in": 1000, "bytes_out": 0, "rows_out": 7}
    values = figures(
        vertex(ExecutionState.RUNNING, timestamps={**times}, **metrics),  # it has not ended
        vertex(ExecutionState.FINISHED, timestamps=times, **metrics),
        vertex(ExecutionState.CANCELED, timestamps={ExecutionState.CREATED: 10.0, ExecutionState.CANCELED: 11.0}),
    )
    assert values == {
        ("vertices", "finished"): [1],
        ("vertices", "canceled"): [1],
        ("vertex.duration", ""): [3.0],
        ("vertex.wait", ""): [2.0],
        ("tasks", ""): [4],
        ("read", ""): [1000],
        ("written", ""): [0],
        ("rows.written", ""): [7],
    }


def test_decisions() -> None:
    values = figures(
        DecisionRecorded(decision(0, saved=500)),
        DecisionRecorded(decision(1, saved=300)),
        DecisionSettled(decision(0, saved=500, tasks="4")),
        DecisionSettled(decision(1, saved=300, instead="it is shuffled")),
        DecisionSettled(decision(1, saved=300, instead="it is shuffled")),  # settled again with more figures
        JobStateChanged(ExecutionState.FINISHED, at=107.5),
    )
    assert values["decisions", "broadcast"] == [1, 1]
    assert values["decisions.came_otherwise", "broadcast"] == [1]
    assert values["not_shuffled", ""] == [500]
