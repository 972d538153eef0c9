"""The way of one vertex: decided, run, recorded, and what it is at each step."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import StageReport
from penstock.decisions import DecisionLog
from penstock.events import ExecutionState, JobAccount, VertexChanged
from penstock.execution.reads import VertexSetup
from penstock.execution.vertex_runner import VertexRun
from penstock.graph import JobVertex
from penstock.scheduler.execution_graph import ExecutionJobVertex
from penstock.scheduler.vertex_execution import VertexExecution
from penstock.threads import works
from tests.scheduler.results import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.events import JobStatusEvent

VERTEX = JobVertex("v2", "Join", (3, 4), (), None, None)
SETUP = VertexSetup(subpartitions=64)


class Decider:
    """Decides six tasks, whatever it is asked."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def decide(self, vertex: JobVertex, inferred: Mapping[int, int]) -> Any:
        self.steps.append(("decide", vertex.id, dict(inferred)))
        return SimpleNamespace(parallelism=6, reason="16 MiB each", bytes_in=96, setup=SETUP)

    def compare(self, vertex: JobVertex) -> None:
        """Compare nothing: no exchange was foreseen."""


class Runner:
    """Runs a vertex by noting that it was asked to."""

    def __init__(self, steps: list[Any], run: VertexRun | Exception) -> None:
        self.steps, self.outcome = steps, run
        self.results = SimpleNamespace(subpartitions=lambda vertex: [40])

    def run(self, vertex: JobVertex, setup: VertexSetup, description: str) -> VertexRun:
        said = next(
            work.what for work in works(threading.current_thread().name) if work.thread is threading.current_thread()
        )
        self.steps.append(("run", setup, description, said))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def channels(self, vertex: JobVertex) -> list[dict[str, Any]]:
        return []

    def fetch_filters(self, vertex: JobVertex, description: str) -> dict[int, str]:
        self.steps.append(("fetch", description))
        return {3: "k in (1, 2)", 4: "k > 7"}

    def filtered_scan(self, node_id: int) -> str:
        return f"scan {node_id} less what its filters rule out"


class Case:
    """A vertex on its way, with what it did in ``steps``."""

    def __init__(
        self, run: VertexRun | Exception, *, stages: Mapping[int, Any] | None = None, skipped: StageReport | None = None
    ) -> None:
        self.steps: list[Any] = []
        self.sources: dict[int, Any] = {}
        plan = SimpleNamespace(stages=stages or {}, sources=self.sources)
        graph = SimpleNamespace(out_edges=lambda node_id: [])
        context: Any = SimpleNamespace(plan=plan, decisions=DecisionLog(), graph=graph)
        decider: Any = Decider(self.steps)
        runner: Any = Runner(self.steps, run)
        runner.sinks = SimpleNamespace(skipped=lambda vertex: skipped)
        self.account = JobAccount()
        self.account.watch(self)
        self.way = VertexExecution(context, decider, runner, "nightly", self.account)
        self.execution = ExecutionJobVertex(VERTEX, self.account)
        self.execution.move(ExecutionState.SCHEDULED)

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        self.steps += [("told", event.vertex.state) for event in events if isinstance(event, VertexChanged)]

    def execute(self) -> None:
        self.way.execute(self.execution, {3: 5})


def test_it_is_decided_then_told_to_run_then_run() -> None:
    case = Case(VertexRun(written(40), 4))
    case.execute()
    assert case.steps == [
        ("decide", "v2", {3: 5}),
        ("told", ExecutionState.SCHEDULED),
        ("told", ExecutionState.RUNNING),
        ("run", SETUP, "nightly: v2 Join", "running v2 Join"),
    ]
    found = case.execution.snapshot
    assert (found.state, found.parallelism, found.reason) == (ExecutionState.FINISHED, 6, "16 MiB each")
    assert (found.bytes_in, found.bytes_out, found.tasks) == (96, 40, 4)


def test_a_sink_that_needs_no_rows_has_no_tasks() -> None:
    report = StageReport("nothing is written", "the target already has the rows of token 't'")
    case = Case(VertexRun(None, None, report=report), skipped=report)
    case.execute()
    found = case.execution.snapshot
    assert (found.state, found.parallelism, found.tasks) == (ExecutionState.FINISHED, None, None)
    assert found.reason == "nothing is written: the target already has the rows of token 't'"


def test_a_stage_behind_a_sink_has_nothing_to_decide() -> None:
    case = Case(VertexRun(None, 2, report=StageReport("merged", "they were small")), stages={4: None})
    case.execute()
    assert [step[0] for step in case.steps] == ["told", "told", "run"]
    assert case.steps[2][1] == VertexSetup()
    assert (case.execution.snapshot.parallelism, case.execution.snapshot.reason) == (2, "merged: they were small")


def test_one_that_fails_has_not_finished() -> None:
    case = Case(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        case.execute()
    assert case.execution.state is ExecutionState.RUNNING  # the scheduler, who hears of it, moves it on
    assert case.execution.snapshot.tasks is None


class Source:
    """A source, and what it was told of the rows that matter."""

    def __init__(self, told: str = "") -> None:
        self.told = told

    def with_filters(self, plan: str) -> Source:
        return Source(plan)


def test_sources_hear_of_the_keys_that_filter_them() -> None:
    case = Case(VertexRun(written(40), 4))
    case.sources.update({3: Source(), 9: Source()})
    assert case.way.fetch_filters(VERTEX) == {3: "k in (1, 2)", 4: "k > 7"}
    assert case.steps == [("fetch", "nightly: v2 Join")]
    told = {node_id: source.told for node_id, source in case.sources.items()}
    assert told == {3: "scan 3 less what its filters rule out", 9: ""}
