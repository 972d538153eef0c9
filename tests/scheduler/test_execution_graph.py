"""States of a vertex: the allowed changes, the times, and the counts."""

from __future__ import annotations

import itertools

import pytest

from penstock.errors import GraphError
from penstock.events import ExecutionState, JobEventBus, VertexChanged, VertexSnapshot
from penstock.graph import JobVertex
from penstock.scheduler.execution_graph import ExecutionGraph, ExecutionJobVertex

C, S, R, FI, FA, CA = ExecutionState
STEPS = {(C, S), (S, R), (R, FI)} | {(here, end) for here in (C, S, R) for end in (FA, CA)}
PATHS = {C: [], S: [S], R: [S, R], FI: [S, R, FI], FA: [FA], CA: [CA]}
"""The states through which a vertex reaches each state."""


def vertex(number: int = 1) -> JobVertex:
    return JobVertex(f"v{number}", "n", (number,), (), None, None)


def at(state: ExecutionState, event_bus: JobEventBus | None = None) -> ExecutionJobVertex:
    execution = ExecutionJobVertex(vertex(), event_bus or JobEventBus())
    for step in PATHS[state]:
        execution.move(step)
    return execution


@pytest.mark.parametrize(("here", "there"), list(itertools.product(ExecutionState, repeat=2)))
def test_state_changes(here: ExecutionState, there: ExecutionState) -> None:
    execution = at(here)
    if (here, there) in STEPS:
        execution.move(there)
        assert execution.state is there
        assert list(execution.snapshot.timestamps)[-1] is there
    else:
        with pytest.raises(GraphError, match=f"v1 cannot change from {here} to {there}"):
            execution.move(there)
        assert execution.state is here


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({C: 1.0}, 0.0),
        ({C: 1.0, S: 2.0}, 0.0),
        ({C: 1.0, S: 2.0, R: 5.0, FI: 7.5}, 2.5),
        ({C: 1.0, S: 2.0, R: 5.0, FA: 6.0}, 1.0),
        ({C: 1.0, CA: 6.0}, 0.0),
    ],
)
def test_seconds_are_those_of_its_tasks(times: dict[ExecutionState, float], seconds: float) -> None:
    assert VertexSnapshot(vertex(), timestamps=times).seconds == seconds


def test_the_seconds_of_a_running_vertex_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.events.job_events.time.time", lambda: 103.0)
    assert VertexSnapshot(vertex(), R, timestamps={R: 100.0}).seconds == 3.0


def test_each_state_change_is_an_event() -> None:
    event_bus = JobEventBus()
    execution = at(FI, event_bus)
    snapshots = [event.vertex for event in event_bus.events if isinstance(event, VertexChanged)]
    assert [snapshot.state for snapshot in snapshots] == PATHS[FI]
    assert snapshots[-1] is execution.snapshot


def test_counts() -> None:
    graph = ExecutionGraph(JobEventBus())
    assert graph.all_finished
    first, second = graph.attach(vertex(1)), graph.attach(vertex(2))
    for step in PATHS[FI]:
        first.move(step)
    assert not graph.all_finished
    assert [execution.state for execution in graph] == [ExecutionState.FINISHED, ExecutionState.CREATED]
    assert graph.vertex("v2") is second
    assert list(graph) == [first, second]
