"""Runs a vertex: decides its tasks, records its outcome, and adds actual values to the estimates of its decisions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.threads import track_work
from penstock.base.units import show_count
from penstock.decisions.log import Choice, Decision, DecisionKind, Explanation, VertexRef
from penstock.events import ExecutionState, JobEventBus
from penstock.execution.context import JobContext, VertexSetup
from penstock.graph import CalcOperator, JobVertex, ScanOperator, Side
from penstock.graph.partitioner import BroadcastPartitioner
from penstock.spark.run.exchange import BroadcastResult

if TYPE_CHECKING:
    from penstock.connectors.core.base import KeyFilter
    from penstock.decisions.estimates import Estimate
    from penstock.execution.results import ResultStore
    from penstock.execution.vertex_runner import VertexRun, VertexRunner
    from penstock.planner.plan import SourcePlan
    from penstock.scheduler.deciders.vertex import VertexDecider
    from penstock.scheduler.execution_graph import ExecutionJobVertex
    from penstock.spark.plans.nodes import LogicalNode


@dataclass(eq=False)
class VertexExecution:
    """Runs the vertices of a job; its methods are called on worker threads."""

    _context: JobContext
    _decider: VertexDecider
    _runner: VertexRunner
    _job_name: str
    _event_bus: JobEventBus

    def execute(self, execution: ExecutionJobVertex, inferred: Mapping[int, int]) -> None:
        """Decide a vertex's tasks, run it, record its outcome; `inferred` is the sources' parallelism by node id."""
        vertex = execution.vertex
        with track_work(f"running {vertex.id} {vertex.name}"):
            setup = self._decide(execution, inferred)
            execution.move(ExecutionState.RUNNING)
            self._event_bus.deliver()
            run = self._runner.run(vertex, setup, self._description(vertex))
        record_run(self._context, execution, run, self._runner.results, self._runner.channel_reports(vertex))
        compare_run(self._context, vertex, run, self._runner.results)
        self._decider.compare(vertex)
        execution.move(ExecutionState.FINISHED)

    def _decide(self, execution: ExecutionJobVertex, inferred: Mapping[int, int]) -> VertexSetup:
        vertex = execution.vertex
        if vertex.tail_id in self._context.plan.sink_stages or self._runner.sinks.skip_report(vertex) is not None:
            return VertexSetup()  # the vertex reads no rows
        decided = self._decider.decide(execution.vertex, inferred)
        execution.record(
            parallelism=decided.parallelism,
            reason=decided.reason,
            bytes_in=decided.bytes_in,
            python_functions=decided.python_functions,
        )
        return decided.setup

    def fetch_filters(self, vertex: JobVertex) -> dict[int, KeyFilter]:
        """Collect the keys for the dynamic filters of a vertex, and filter its sources; return filters by node id."""
        with track_work(f"fetching the filters of {vertex.id} {vertex.name}"):
            filters = self._runner.fetch_filters(vertex, self._description(vertex))
        sources = self._context.plan.sources
        for node_id in filters.keys() & sources.keys():
            sources[node_id] = sources[node_id].with_filters(self._runner.filtered_scan(node_id))
        return filters

    def _description(self, vertex: JobVertex) -> str:
        return f"{self._job_name}: {vertex.id} {vertex.name}"


_OUTPUT_KINDS = {DecisionKind.SUBPARTITIONS, DecisionKind.SINK_PARALLELISM, DecisionKind.SINK_STAGE}
"""Decisions about the last stage of a vertex; all others are about the stage that reads its inputs."""


def record_run(
    context: JobContext,
    execution: ExecutionJobVertex,
    run: VertexRun,
    results: ResultStore,
    channel_reports: Iterable[dict[str, Any]],
) -> None:
    """Record the measured figures of a vertex, also as outcomes of all decisions about its operators."""
    vertex, decisions, sources = execution.vertex, context.decisions, context.plan.sources
    reason, report = execution.snapshot.reason, run.report
    for node_id in sources.keys() & set(vertex.node_ids):
        if fallback_reason := sources[node_id].scan.fallback_reason:
            reason = f"Spark computes the query: {fallback_reason}"
    if report is not None:
        reason = f"{report.chosen}: {report.reason}"
        subject = VertexRef(vertex.id, vertex.name, vertex.node_ids)
        explanation = Explanation(f"{subject.display_name}: {reason}")
        choice = Choice(DecisionKind.SINK_STAGE, subject, report.chosen, report.reason, explanation=explanation)
        decisions.record(choice)
    rows = None if run.result is None else run.result.exact_rows
    size: int | None = None
    if run.result is not None:  # estimated bytes of broadcast rows, or compressed bytes of a shuffle
        size = run.result.data_bytes if isinstance(run.result, BroadcastResult) else run.result.written_bytes
    # If no parallelism was decided, record the number of tasks that ran.
    parallelism, sizes = execution.snapshot.parallelism or run.tasks, results.subpartition_bytes(vertex)
    execution.record(
        tasks=run.tasks, rows_out=rows, bytes_out=size, subpartitions=sizes, parallelism=parallelism, reason=reason
    )
    for decision in decisions.of(vertex.node_ids):
        tasks = run.tasks if decision.kind in _OUTPUT_KINDS or run.input_tasks is None else run.input_tasks
        decisions.settle(decision.id, tasks=tasks, rows=rows, bytes=size)
    for channel_report in channel_reports:
        decisions.record(_channel_choice(vertex, channel_report))


def _channel_choice(vertex: JobVertex, report: dict[str, Any]) -> Choice:
    """Return a decision that reports a task of an adaptive exchange: the rows it read, and sent to each consumer."""
    rows = {f"rows to {channel['reader']}": channel["rows"] for channel in report["channels"]}
    rates = {f"rows a second of {channel['reader']}": channel["pace"] for channel in report["channels"]}
    figures = {name: report[name] for name in ("rows", "bytes", "largest_queue", "waited", "blocked")}
    waited = f"waited {report['waited']:.1f} s for rows and {report['blocked']:.1f} s for consumers to accept them"
    subject = VertexRef(vertex.id, vertex.name, vertex.node_ids, task=report["index"])
    return Choice(
        DecisionKind.REBALANCE,
        subject,
        f"{report['rows']} rows",
        f"it waited {report['waited']:.1f} s for rows to read, and {report['blocked']:.1f} s for consumers to accept",
        figures | rows | rates,
        Explanation(f"{subject.display_name}: took {show_count(report['rows'], 'row')}, {waited}", is_shown=False),
    )


log = logging.getLogger("penstock.scheduler")

_SOURCE_KINDS = (DecisionKind.SOURCE_PARALLELISM, DecisionKind.VERTEX_PARALLELISM)  # with estimates of rows read


def compare_run(context: JobContext, vertex: JobVertex, run: VertexRun, results: ResultStore) -> None:
    """Add the actual figures to the estimates of decisions about a vertex.

    A vertex without a result is skipped: it writes to a sink, which may fetch the rows only after the vertex has run.
    """
    if run.result is None:
        return
    size = run.result.data_bytes if isinstance(run.result, BroadcastResult) else run.result.size_in_bytes
    if size is not None:  # bytes in memory, which decisions to broadcast estimate
        _compare_broadcast(context, vertex, size)
    estimates = [(decision, _estimate(decision)) for decision in context.decisions.of(vertex.node_ids)]
    unsettled = [decision for decision, estimate in estimates if estimate is not None and estimate.actual is None]
    if not unsettled:
        return
    try:
        _compare_sources(context, vertex, unsettled, results)
        _compare_filters(context, vertex, unsettled, results)
    except Exception:
        log.info("cannot compare what %s has read with its estimates", vertex.name, exc_info=True)


def _estimate(decision: Decision) -> Estimate | None:
    return None if decision.explanation is None else decision.explanation.estimate


def _compare_broadcast(context: JobContext, vertex: JobVertex, size: int) -> None:
    for edge in context.graph.out_edges(vertex.tail_id):
        if isinstance(edge.partitioner, BroadcastPartitioner):
            build = Side.of_input(edge.type_number)
            for decision in context.decisions.of((edge.target_id,), DecisionKind.BROADCAST):
                if decision.chosen == build:
                    context.decisions.compare(decision.id, size)


def _compare_sources(context: JobContext, vertex: JobVertex, unsettled: list[Decision], results: ResultStore) -> None:
    """Compare the estimated rows of sources with the rows that were read.

    Bytes are not compared: Spark counts only reads by the task's own thread, but other threads read most Parquet data.
    """
    source_decisions = [decision for decision in unsettled if decision.kind in _SOURCE_KINDS]
    if source_decisions:
        scanned = results.scanned_rows(vertex)
        sources = {node_id for node_id in vertex.node_ids if node_id in context.plan.sources}
        # Some scans do not report the number of rows that they read.
        rows = sum(scanned.values()) if sources and scanned.keys() >= sources else None
        for decision in source_decisions:
            context.decisions.compare(decision.id, rows)


def _compare_filters(context: JobContext, vertex: JobVertex, unsettled: list[Decision], results: ResultStore) -> None:
    """Compare the estimated selectivity of dynamic filters with the fraction of rows that their source retained.

    If other filters removed rows too, this fraction is a lower bound for the selectivity of each filter.
    """
    by_source: dict[int, list[Decision]] = {}
    for decision in unsettled:
        if decision.kind is DecisionKind.DYNAMIC_FILTER:
            source = _filtered_source(context, decision.nodes[0])
            if source is not None:
                by_source.setdefault(source, []).append(decision)
    retained = results.retained_rows(vertex) if by_source else {}
    for source, decisions in by_source.items():
        scan = context.graph.node(source).operator
        assert isinstance(scan, ScanOperator)
        if source not in retained or not scan.rows:
            continue
        selectivity = retained[source] / scan.rows
        is_only_filter = len(decisions) == 1 and _filters_only_nulls(context.plan.sources[source])
        for decision in decisions:
            estimate = _estimate(decision)
            # With other filters, the fraction is a lower bound, which only proves that a lower estimate was too low.
            if is_only_filter or (estimate is not None and estimate.estimated < selectivity):
                context.decisions.compare(decision.id, selectivity, is_least=not is_only_filter)


def _filtered_source(context: JobContext, node_id: int) -> int | None:
    """Return the source that a filter at a node reads, the node or its input; None for other nodes and costly Calcs."""
    graph = context.graph
    if node_id in context.plan.sources:
        consumers = [graph.node(edge.target_id).operator for edge in graph.out_edges(node_id)]
        has_costly_calc = any(isinstance(consumer, CalcOperator) and not consumer.is_cheap for consumer in consumers)
        return None if has_costly_calc else node_id
    node, inputs = graph.node(node_id), graph.in_edges(node_id)
    if not isinstance(node.operator, CalcOperator) or not node.operator.is_cheap or len(inputs) != 1:
        return None
    return inputs[0].source_id if inputs[0].source_id in context.plan.sources else None


def _filters_only_nulls(source: SourcePlan) -> bool:
    """Whether the query itself removes no rows of a source except those with nulls."""
    node: LogicalNode = source.filtered
    while node.children:
        if node.name == "Filter" and not node.filters_only_nulls:
            return False
        node = node.children[0]
    return True
