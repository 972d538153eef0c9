"""Execution of a vertex: the order of its steps, and its state at each step."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.base.threads import running_work
from penstock.connectors import StageReport
from penstock.decisions.log import DecisionLog
from penstock.events import ExecutionState, JobEventBus, VertexChanged
from penstock.execution.context import VertexSetup
from penstock.execution.vertex_runner import VertexRun
from penstock.graph import JobVertex
from penstock.scheduler.execution_graph import ExecutionJobVertex
from penstock.scheduler.vertex_execution import VertexExecution
from tests.scheduler.results import written

if TYPE_CHECKING:
    from penstock.events import JobStatusEvent

VERTEX = JobVertex("v2", "Join", (3, 4), (), None, None)
SETUP = VertexSetup(subpartitions=64)


class Decider:
    """Always decides six tasks."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def decide(self, vertex: JobVertex, inferred: Mapping[int, int]) -> Any:
        self.steps.append(("decide", vertex.id, dict(inferred)))
        return SimpleNamespace(parallelism=6, reason="16 MiB each", bytes_in=96, python_functions=(), setup=SETUP)

    def compare(self, vertex: JobVertex) -> None:
        """Compare nothing: there is no estimate."""


class Runner:
    """Records its calls."""

    def __init__(self, steps: list[Any], run: VertexRun | Exception) -> None:
        self.steps, self.outcome = steps, run
        self.results = SimpleNamespace(subpartition_bytes=lambda vertex: [40])

    def run(self, vertex: JobVertex, setup: VertexSetup, description: str) -> VertexRun:
        activity = next(
            work.description
            for work in running_work(threading.current_thread().name)
            if work.thread is threading.current_thread()
        )
        self.steps.append(("run", setup, description, activity))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def channel_reports(self, vertex: JobVertex) -> list[dict[str, Any]]:
        return []

    def fetch_filters(self, vertex: JobVertex, description: str) -> dict[int, str]:
        self.steps.append(("fetch", description))
        return {3: "k in (1, 2)", 4: "k > 7"}

    def filtered_scan(self, node_id: int) -> str:
        return f"scan {node_id} with its filters"


class Case:
    """A vertex to execute; ``steps`` records what happens."""

    def __init__(
        self,
        run: VertexRun | Exception,
        *,
        stages: Mapping[int, Any] | None = None,
        skip_report: StageReport | None = None,
    ) -> None:
        self.steps: list[Any] = []
        self.sources: dict[int, Any] = {}
        plan = SimpleNamespace(sink_stages=stages or {}, sources=self.sources)
        graph = SimpleNamespace(out_edges=lambda node_id: [])
        context: Any = SimpleNamespace(plan=plan, decisions=DecisionLog(), graph=graph)
        decider: Any = Decider(self.steps)
        runner: Any = Runner(self.steps, run)
        runner.sinks = SimpleNamespace(skip_report=lambda vertex: skip_report)
        self.account = JobEventBus()
        self.account.watch(self)
        self.vertex_execution = VertexExecution(context, decider, runner, "nightly", self.account)
        self.execution = ExecutionJobVertex(VERTEX, self.account)
        self.execution.move(ExecutionState.SCHEDULED)

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        self.steps += [("event", event.vertex.state) for event in events if isinstance(event, VertexChanged)]

    def execute(self) -> None:
        self.vertex_execution.execute(self.execution, {3: 5})


def test_a_vertex_is_decided_then_marked_running_then_run() -> None:
    case = Case(VertexRun(written(40), 4))
    case.execute()
    assert case.steps == [
        ("decide", "v2", {3: 5}),
        ("event", ExecutionState.SCHEDULED),
        ("event", ExecutionState.RUNNING),
        ("run", SETUP, "nightly: v2 Join", "running v2 Join"),
    ]
    snapshot = case.execution.snapshot
    assert (snapshot.state, snapshot.parallelism, snapshot.reason) == (ExecutionState.FINISHED, 6, "16 MiB each")
    assert (snapshot.bytes_in, snapshot.bytes_out, snapshot.tasks) == (96, 40, 4)


def test_a_sink_that_needs_no_rows_has_no_tasks() -> None:
    report = StageReport("nothing is written", "the target already has the rows of token 't'")
    case = Case(VertexRun(None, None, report=report), skip_report=report)
    case.execute()
    snapshot = case.execution.snapshot
    assert (snapshot.state, snapshot.parallelism, snapshot.tasks) == (ExecutionState.FINISHED, None, None)
    assert snapshot.reason == "nothing is written: the target already has the rows of token 't'"


def test_a_stage_after_a_sink_needs_no_decision() -> None:
    case = Case(VertexRun(None, 2, report=StageReport("merged", "they were small")), stages={4: None})
    case.execute()
    assert [step[0] for step in case.steps] == ["event", "event", "run"]
    assert case.steps[2][1] == VertexSetup()
    assert (case.execution.snapshot.parallelism, case.execution.snapshot.reason) == (2, "merged: they were small")


def test_a_failed_vertex_has_not_finished() -> None:
    case = Case(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        case.execute()
    assert case.execution.state is ExecutionState.RUNNING  # the scheduler changes it when it handles the error
    assert case.execution.snapshot.tasks is None


class Source:
    """A source, and the scan with its filters."""

    def __init__(self, scan: str = "") -> None:
        self.scan = scan

    def with_filters(self, plan: str) -> Source:
        return Source(plan)


def test_filters_are_applied_to_sources() -> None:
    case = Case(VertexRun(written(40), 4))
    case.sources.update({3: Source(), 9: Source()})
    assert case.vertex_execution.fetch_filters(VERTEX) == {3: "k in (1, 2)", 4: "k > 7"}
    assert case.steps == [("fetch", "nightly: v2 Join")]
    scans = {node_id: source.scan for node_id, source in case.sources.items()}
    assert scans == {3: "scan 3 with its filters", 9: ""}
