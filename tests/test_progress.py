from __future__ import annotations

import threading
from typing import Any

from penstock import progress
from penstock.events import ExecutionState, JobStateChanged, VertexChanged, VertexSnapshot, VerticesCreated
from penstock.graph import JobVertex
from penstock.progress import Progress


def state(reached: Any) -> Any:
    return JobStateChanged(reached, 3)


def vertex(number: Any, reached: Any = ExecutionState.CREATED, parallelism: Any = None) -> Any:
    return VertexSnapshot(JobVertex(f"v{number}", "Calc -> Join", (1, 2), (), None, None), reached, parallelism)


def test_jobs_at_once_draw_on_one_screen() -> None:
    shown = [Progress("one"), Progress("two")]
    for one in shown:
        one.on_events([state(ExecutionState.RUNNING)])
    bars = progress._SCREEN._bars
    assert [task.description for task in bars.tasks] == ["one", "two"]
    shown[0].on_events([state(ExecutionState.CANCELED)])
    shown[0].on_events([state(ExecutionState.CANCELED)])
    assert [task.description for task in bars.tasks] == ["two"]
    shown[1].on_events([state(ExecutionState.FINISHED)])
    assert progress._SCREEN._bars is None
    assert bars.finished
    assert not bars.live.is_started


def test_a_job_without_vertices_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    one = Progress("failed before anything ran")
    one.on_events([state(ExecutionState.RUNNING)])
    one.on_events([state(ExecutionState.FAILED)])
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(10)  # rich tells its thread to stop, and does not wait for it
    assert not any(thread.is_alive() for thread in left)


def test_operators_count_when_their_vertex_has_finished() -> None:
    one = Progress("nightly")

    def drawn(*events: Any) -> Any:
        one.on_events(events)
        bars = progress._SCREEN._bars
        return [(task.description.strip(), task.completed, task.total) for task in bars.tasks]

    assert drawn(VerticesCreated((vertex(1), vertex(2)), 3)) == [("nightly", 0, 7)]
    running = vertex(1, ExecutionState.RUNNING, 5)
    assert drawn(VertexChanged(running)) == [("nightly", 0, 7), ("v1 Calc -> Join x5", 0, None)]
    assert drawn(VertexChanged(vertex(1, ExecutionState.FINISHED))) == [("nightly", 2, 7)]
    assert drawn(VertexChanged(vertex(2, ExecutionState.CANCELED))) == [("nightly", 2, 7)]
    one.on_events([state(ExecutionState.FAILED)])
    assert progress._SCREEN._bars is None
