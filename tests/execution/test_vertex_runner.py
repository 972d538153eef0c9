"""Runs of vertices: their settings, the retry if Spark refuses the layout of their inputs, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors import SinkStage, StageReport
from penstock.connectors.core.base import NothingToWrite, already_written
from penstock.decisions.log import Choice, DecisionKind, NodeRef
from penstock.execution import vertex_runner
from penstock.execution.context import CoalescedRead, SlicedRead, VertexSetup
from penstock.execution.vertex_runner import VertexRun, VertexRunner
from penstock.graph import JobVertex
from penstock.graph.partitioner import AdaptiveRebalancePartitioner
from penstock.sizing.skew_cut import Slice
from tests.execution.plans import Context, job
from tests.scheduler.results import written

REFUSED = RuntimeError("no other input can be repartitioned like coalesced subpartitions")
SLICED = VertexSetup({"1-2": SlicedRead([(Slice((0, 1)),)])}, subpartitions=8)
CUT = VertexSetup({"1-2": CoalescedRead([(0, 1)])}, subpartitions=64)
SUBPARTITIONS = "spark.sql.shuffle.partitions"
WRITERS = "spark.sql.maxConcurrentOutputFileWriters"


def vertex(*nodes: int) -> JobVertex:
    return JobVertex("v1", "the vertex", nodes, (), None, None)


class FakeBuilder:
    """Builds no plan, and records its setups."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, errors: Sequence[Exception] = (), result: Any = None) -> None:
        self.setups: list[VertexSetup] = []
        self.errors = list(errors)
        self.result = written(40) if result is None else result
        monkeypatch.setattr(vertex_runner, "FragmentBuilder", self.builder)
        monkeypatch.setattr(vertex_runner, "write_output", lambda *_: self.result)

    def builder(self, context: Any, leaves: Any, filters: Any, setup: VertexSetup, *_: Any) -> Any:
        self.setups.append(setup)
        return SimpleNamespace(build=self.build)

    def build(self, vertex: JobVertex) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "a plan"


def run(context: Context, setup: VertexSetup = CUT, *nodes: int) -> tuple[VertexRunner, VertexRun]:
    runner = VertexRunner(context)
    return runner, runner.run(vertex(*(nodes or (2,))), setup, "nightly: v1")


def test_the_result_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder(monkeypatch)
    runner, outcome = run(job("1 #> 2\n2 #> 3"))
    assert outcome.result is runner.results.get(2) is builder.result
    assert outcome.tasks == builder.result.tasks == 4
    assert builder.setups == [CUT]


def test_a_vertex_that_spark_refuses_runs_with_its_own_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, context = FakeBuilder(monkeypatch, [REFUSED]), job("1 #> 2\n2 #> 3")
    for kind in (DecisionKind.VERTEX_PARALLELISM, DecisionKind.BROADCAST):
        context.decisions.record(Choice(kind, NodeRef(2, "n2"), 1, "few"))
    _, outcome = run(context)
    assert builder.setups == [CUT, replace(CUT, has_common_layout=False)]
    assert outcome.result is builder.result
    fallbacks = {decision.kind: decision.outcome.get("instead") for decision in context.decisions}
    assert fallbacks == {
        DecisionKind.VERTEX_PARALLELISM: "its inputs are shuffled inside the step",
        DecisionKind.BROADCAST: None,
    }


@pytest.mark.parametrize("errors", [[ValueError("no memory")], [REFUSED, ValueError("no memory")]])
def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch, errors: list[Exception]) -> None:
    FakeBuilder(monkeypatch, errors)
    with pytest.raises(ValueError, match="no memory"):
        run(job("1 #> 2\n2 #> 3"))


@pytest.mark.parametrize(
    ("stages", "returned"),
    [(("stage",), [1, 2]), ((), [])],  # a plan without stages has not run, and needs its settings later
)
def test_sessions_are_returned_when_they_are_no_longer_used(
    monkeypatch: pytest.MonkeyPatch, stages: tuple[str, ...], returned: list[int]
) -> None:
    FakeBuilder(monkeypatch, result=replace(written(40), stages=stages))
    context = job("1 #> 2\n2 #> 3")
    run(context, replace(CUT, scan_settings={2: {"spark.sql.files.maxPartitionBytes": "1m"}}))
    sessions: Any = context.sessions
    assert sessions.returned == returned
    assert sessions.settings[1] == {"spark.sql.files.maxPartitionBytes": "1m"}


@pytest.mark.parametrize(
    ("setup", "is_sink", "writers"), [(CUT, True, None), (SLICED, True, "8"), (SLICED, False, None)]
)
def test_settings(monkeypatch: pytest.MonkeyPatch, setup: VertexSetup, is_sink: bool, writers: str | None) -> None:
    FakeBuilder(monkeypatch)
    context = job("1 #> 2" if is_sink else "1 #> 2\n2 #> 3", sinks={2: None} if is_sink else None)
    monkeypatch.setattr("penstock.execution.sink_writer.SinkWriter.write", lambda *_: (3, 7))
    _, outcome = run(context, setup)
    sessions: Any = context.sessions
    (settings,) = sessions.settings
    assert settings[SUBPARTITIONS] == str(setup.subpartitions)
    assert settings.get(WRITERS) == writers
    if is_sink:
        assert outcome == VertexRun(None, 3, 7)


def test_a_stage_after_a_sink_needs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder(monkeypatch)
    report = StageReport("3 files merged", "they were small", 2)
    sinks: list[Any] = []
    stage = SinkStage("merge", lambda sink: sinks.append(sink) or report)
    sink: Any = "the sink"
    _, outcome = run(job("1 #> 2\n2 #> 3", sinks={2: sink}, stages={3: (2, stage)}), CUT, 3)
    assert (outcome, sinks, builder.setups) == (VertexRun(None, 2, report=report), [sink], [])


def test_a_sink_that_needs_no_rows_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder(monkeypatch)
    context = job("1 #> 2", sinks={2: NothingToWrite(already_written("2026-11"))})
    _, outcome = run(context)
    report = StageReport("nothing is written", "the target already has the rows of token '2026-11'")
    assert (outcome, builder.setups) == (VertexRun(None, None, report=report), [])


def test_reads_are_checked_only_with_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeBuilder(monkeypatch)
    checked: list[str] = []
    monkeypatch.setattr(vertex_runner, "check_reads", lambda context, results, vertex, setup: checked.append(vertex.id))
    for verify in (False, True):
        run(job("1 #> 2\n2 #> 3", verify=verify))
    assert checked == ["v1"]


REPORTS = [
    {"index": 1, "stage": 9, "rows": 8},
    {"index": 1, "stage": 9, "rows": 9},  # the task ran again
    {"index": 0, "stage": 9, "rows": 6},
    {"index": 1, "stage": 4, "rows": 7},  # of another job
    {"index": 0, "stage": 4, "rows": 5},
]


def test_the_latest_reports_of_an_adaptive_exchange() -> None:
    context = job("1 => 2\n2 -> 3\n3 #> 4")
    edge = replace(context.graph.edge("1-2"), partitioner=AdaptiveRebalancePartitioner(2))
    plan = replace(
        context.plan,
        graph=context.graph.replace(edges=[edge]),
        consumer_stages={2: SimpleNamespace(reports=lambda: REPORTS)},  # type: ignore[dict-item]
    )
    runner = VertexRunner(replace(context, plan=plan, owner=plan))
    assert [report["rows"] for report in runner.channel_reports(vertex(2, 3))] == [6, 9]
    assert runner.channel_reports(vertex(4)) == []


def test_filters_are_fetched_only_for_filtered_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    monkeypatch.setattr(
        "penstock.execution.dynamic_filters.DynamicFilters.collect", lambda self, session, node: fetched.append(node.id)
    )
    monkeypatch.setattr(
        "penstock.execution.dynamic_filters.DynamicFilters.source_filter",
        lambda self, node: "k = 1" if node.id == 2 else None,
    )
    context = job("1 -> 2\n2 -> 3\n3 -> 4", filters={2: ("f",), 3: ("f",)})
    runner = VertexRunner(context)
    assert runner.fetch_filters(vertex(1, 4), "nightly") == {}
    sessions: Any = context.sessions
    assert (fetched, sessions.settings) == ([], [])
    assert runner.fetch_filters(vertex(1, 2, 3, 4), "nightly") == {2: "k = 1"}
    assert (fetched, sessions.settings, sessions.returned) == ([2, 3], [{SUBPARTITIONS: "1"}], [1])


def test_release_closes_sources_and_forgets_results() -> None:
    context = job("1 -> 2", sources=[1])
    runner = VertexRunner(context)
    runner.results.add(2, written(40))
    runner.release()
    assert runner.results.get(2) is None
    scan: Any = context.plan.sources[1].scan
    assert scan.is_closed
