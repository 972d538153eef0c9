"""What the events of a job add up to."""

from __future__ import annotations

from typing import Any

from penstock.decisions import Decision, DecisionKind, NodeRef, Told
from penstock.events import (
    DecisionMade,
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
    """Adds figures up, by instrument and label."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], list[float]] = {}

    def add(self, instrument: Any, figure: float, label: str = "") -> None:
        self.all.setdefault((instrument.name.removeprefix("penstock."), label), []).append(figure)


def figures(*events: Any) -> dict[tuple[str, str], list[float]]:
    meter = Figures()
    JobMetrics([meter], started=100.0).on_events(events)
    return meter.all


def vertex(state: ExecutionState, **known: Any) -> VertexChanged:
    made = JobVertex("v1", "Scan -> Calc", (1, 2), (), None, None)
    return VertexChanged(VertexSnapshot(made, state, 4, **known))


def decision(number: int, saved: int | None = None, **outcome: str) -> Decision:
    told = Told("users is broadcast", "an option", not_shuffled=saved)
    return Decision(DecisionKind.BROADCAST, NODE, "left", "it is small", {}, told, id=number, outcome=outcome)


def test_a_job() -> None:
    found = figures(
        JobStateChanged(ExecutionState.RUNNING, at=101.0),
        JobStateChanged(ExecutionState.RUNNING, at=102.0),  # it is told again
        JobStateChanged(ExecutionState.FINISHED, at=107.5),
    )
    assert found == {
        ("jobs.running", ""): [1, -1],
        ("jobs", "finished"): [1],
        ("job.duration", "finished"): [7.5],
        ("not_shuffled", ""): [0],
    }


def test_a_job_that_never_ran() -> None:
    found = figures(JobStateChanged(ExecutionState.CANCELED, at=100.5))
    assert ("jobs.running", "") not in found
    assert found["jobs", "canceled"] == [1]


def test_vertices() -> None:
    times = {ExecutionState.CREATED: 10.0, ExecutionState.RUNNING: 12.0, ExecutionState.FINISHED: 15.0}
    known = {"tasks": 4, "bytes_in": 1000, "bytes_out": 0, "rows_out": 7}
    found = figures(
        vertex(ExecutionState.RUNNING, timestamps={**times}, **known),  # it has not ended
        vertex(ExecutionState.FINISHED, timestamps=times, **known),
        vertex(ExecutionState.CANCELED, timestamps={ExecutionState.CREATED: 10.0, ExecutionState.CANCELED: 11.0}),
    )
    assert found == {
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
    found = figures(
        DecisionMade(decision(0, saved=500)),
        DecisionMade(decision(1, saved=300)),
        DecisionSettled(decision(0, saved=500, tasks="4")),
        DecisionSettled(decision(1, saved=300, instead="it is shuffled")),
        DecisionSettled(decision(1, saved=300, instead="it is shuffled")),  # more is known of it
        JobStateChanged(ExecutionState.FINISHED, at=107.5),
    )
    assert found["decisions", "broadcast"] == [1, 1]
    assert found["decisions.came_otherwise", "broadcast"] == [1]
    assert found["not_shuffled", ""] == [500]
