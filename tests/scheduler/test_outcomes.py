"""Outcomes of a vertex that has run, and of the decisions about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.connectors import StageReport
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, NameRef
from penstock.events import JobEventBus, VertexSnapshot
from penstock.execution.vertex_runner import VertexRun
from penstock.graph import JobVertex
from penstock.scheduler.execution_graph import ExecutionJobVertex
from penstock.scheduler.vertex_execution import record_run
from tests.scheduler.results import written

VERTEX = JobVertex("v2", "Join", (3, 4), (), None, None)


class Results:
    """The subpartition sizes of a vertex."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)

    def subpartition_bytes(self, vertex: JobVertex) -> list[int]:
        assert vertex is VERTEX
        return self.sizes


def recorded(
    run: VertexRun, *choices: Choice, sizes: tuple[int, ...] = (), channels: tuple[dict[str, Any], ...] = ()
) -> tuple[VertexSnapshot, DecisionLog]:
    """Record a run; return the vertex and the decisions."""
    log = DecisionLog()
    for choice in choices:
        log.record(choice)
    execution = ExecutionJobVertex(VERTEX, JobEventBus())
    context: Any = SimpleNamespace(decisions=log, plan=SimpleNamespace(sources={}))
    results: Any = Results(*sizes)
    record_run(context, execution, run, results, channels)
    return execution.snapshot, log


def choice(*nodes: int) -> Choice:
    return Choice(DecisionKind.BROADCAST, NameRef("x", nodes), "left", "it is small")


def test_measured_figures() -> None:
    execution, _ = recorded(VertexRun(written(30, 10), 4), sizes=(30, 10))
    assert (execution.tasks, execution.rows_out, execution.bytes_out) == (4, 100, 40)
    assert execution.subpartitions == [30, 10]
    assert execution.parallelism == 4  # no number was decided, so the tasks that ran


def test_a_decided_parallelism_is_not_replaced() -> None:
    log, execution = DecisionLog(), ExecutionJobVertex(VERTEX, JobEventBus())
    execution.record(parallelism=7, reason="as measured", bytes_in=40)
    context: Any = SimpleNamespace(decisions=log, plan=SimpleNamespace(sources={}))
    results: Any = Results()
    record_run(context, execution, VertexRun(None, 4), results, ())
    assert (execution.snapshot.parallelism, execution.snapshot.tasks) == (7, 4)


def test_only_decisions_about_its_operators_are_settled() -> None:
    _, log = recorded(VertexRun(written(40), 4), choice(3), choice(9), choice(2, 4))
    first, unrelated, second = log
    assert first.outcome == second.outcome == {"tasks": 4, "rows": 100, "bytes": 40}
    assert unrelated.outcome == {}


def test_a_decision_has_the_tasks_of_its_stage() -> None:
    choices = [
        Choice(kind, NameRef("x", (3,)), 7, "")
        for kind in (DecisionKind.VERTEX_PARALLELISM, DecisionKind.SUBPARTITIONS)
    ]
    execution, log = recorded(VertexRun(written(40), 4, input_tasks=7), *choices)
    assert [decision.outcome["tasks"] for decision in log] == [7, 4]
    assert execution.tasks == 4


def test_a_sink_has_no_result() -> None:
    execution, log = recorded(VertexRun(None, 4), choice(3))
    assert (execution.rows_out, execution.bytes_out, execution.subpartitions) == (None, None, [])
    assert [decision.outcome for decision in log] == [{"tasks": 4}]


def test_the_report_of_a_stage_after_a_sink() -> None:
    execution, log = recorded(VertexRun(None, None, report=StageReport("3 files merged", "they were small")))
    assert execution.reason == "3 files merged: they were small"
    (decision,) = log
    assert decision.kind is DecisionKind.SINK_STAGE
    assert (decision.chosen, decision.reason) == ("3 files merged", "they were small")
    assert decision.nodes == VERTEX.node_ids


def test_reports_of_an_adaptive_exchange() -> None:
    report: dict[str, Any] = {
        "index": 2,
        "rows": 50,
        "bytes": 800,
        "largest_queue": 3,
        "waited": 0.25,
        "blocked": 1.5,
        "channels": [{"reader": 0, "rows": 10, "pace": 2.0}, {"reader": 1, "rows": 40, "pace": 8.0}],
    }
    _, log = recorded(VertexRun(written(40), 4), channels=(report, report | {"index": 3}))
    first, second = log
    assert (first.kind, first.chosen) == (DecisionKind.REBALANCE, "50 rows")
    assert [str(decision.subject).rpartition(" ")[2] for decision in (first, second)] == ["2", "3"]
    assert first.figures == {
        "rows": 50,
        "bytes": 800,
        "largest_queue": 3,
        "waited": 0.25,
        "blocked": 1.5,
        "rows to 0": 10,
        "rows to 1": 40,
        "rows a second of 0": 2.0,
        "rows a second of 1": 8.0,
    }
    assert "0.2 s for rows to read, and 1.5 s" in first.reason
