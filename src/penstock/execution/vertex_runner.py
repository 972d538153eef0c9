"""Runs a vertex: builds its plan, runs it on Spark, and registers its result in the form that its consumers read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.base.threads import track_work
from penstock.config.options import NATIVE
from penstock.connectors.core.base import KeyFilter, StageReport, VerifiableSplits
from penstock.decisions.log import Choice, DecisionKind, Explanation, NodeRef, display_name
from penstock.execution.broadcasts import Broadcasts
from penstock.execution.context import CoalescedRead, JobContext, SlicedRead, VertexSetup
from penstock.execution.dynamic_filters import DynamicFilters
from penstock.execution.fragment_builder import FragmentBuilder
from penstock.execution.leaves import LeafBuilder
from penstock.execution.python_batches import PythonBatches
from penstock.execution.results import Result, ResultStore
from penstock.execution.sink_writer import SinkWriter
from penstock.graph import AggregateOperator, JobVertex, StreamEdge
from penstock.graph.partitioner import (
    AdaptiveRebalancePartitioner,
    AdaptiveRescalePartitioner,
    PulledRebalancePartitioner,
)
from penstock.optimizer.graphs import is_broadcast
from penstock.planner.late_values import has_late_values
from penstock.planner.plan import WriteKind
from penstock.planner.whole_queries import NativeQuery
from penstock.sizing.coverage import check_ranges, check_slices, check_splits
from penstock.spark.plans import fragment
from penstock.spark.run import exchange, layouts
from penstock.spark.run.exchange import StagedResult

if TYPE_CHECKING:
    from penstock.engine.interface import FragmentRewriter
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan

_REPORTING_PARTITIONERS = (AdaptiveRebalancePartitioner, AdaptiveRescalePartitioner, PulledRebalancePartitioner)
"""Partitioners whose consumers report the rows of each task."""
_MAX_OPEN_FILES = 8
"""The maximum files that a task writes concurrently; it sorts the rows of any further files before it writes them."""


@dataclass(frozen=True, slots=True)
class VertexRun:
    """The outcome of running a vertex.

    `result` is None for a sink. `tasks` is the number of tasks that produced the rows of the vertex, None if nothing
    has run. `input_tasks` is the number of tasks that read its inputs, which differs if Spark exchanged rows inside the
    vertex. `report` is the report of a sink stage, or of a sink that writes nothing.
    """

    result: Result | None
    tasks: int | None
    input_tasks: int | None = None
    report: StageReport | None = None


class VertexRunner:
    """Runs the vertices of a job; the scheduler calls `run` on a separate thread for each vertex."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.results = ResultStore(context)
        self._batches = PythonBatches(spark_only=not context.has_native_steps)
        self.sinks = SinkWriter(context, self.results, self._batches)
        self._broadcasts = Broadcasts(context, self.results)
        self._filters = DynamicFilters(context, self.results, self._broadcasts)
        self._leaves = LeafBuilder(context, self.results, self._broadcasts, self._batches)

    def fetch_filters(self, vertex: JobVertex, description: str) -> dict[int, KeyFilter]:
        """Collect the keys for the dynamic filters of a vertex; return the filters of its sources, by node."""
        graph = self._context.graph
        nodes = [node for node in map(graph.node, vertex.node_ids) if node.filters]
        if not nodes:
            return {}
        group, description = self._context.spark_job_group(vertex), f"{description}: keys of finished sides"
        with (
            self._context.sessions.use({"spark.sql.shuffle.partitions": "1"}) as session,
            self._context.thread(session, group, description),
        ):
            for node in nodes:
                self._filters.collect(session, node)
        return {node.id: key_filter for node in nodes if (key_filter := self._filters.source_filter(node)) is not None}

    def filtered_scan(self, node_id: int) -> LogicalPlan:
        """Return a source's leaf with the query's filters directly above it, and with its dynamic filters on top."""
        plan = self._context.plan.sources[node_id].filtered
        return self._filters.apply(self._context.graph.node(node_id), plan)

    def run(self, vertex: JobVertex, setup: VertexSetup, description: str) -> VertexRun:
        """Run a vertex and return its outcome."""
        if vertex.tail_id in self._context.plan.sink_stages:
            sink, stage = self._context.plan.sink_stages[vertex.tail_id]
            with self._context.thread(self._context.bridge.session, self._context.spark_job_group(vertex), description):
                report = stage.run(self._context.sinks[sink])
            return VertexRun(None, report.tasks, report=report)
        skip_report = self.sinks.skip_report(vertex)
        if skip_report is not None:
            return VertexRun(None, None, report=skip_report)
        sessions = self._context.sessions
        session = sessions.take(self._session_settings(vertex, setup))
        scan_sessions = {node_id: sessions.take(settings) for node_id, settings in setup.scan_settings.items()}
        with self._context.thread(session, self._context.spark_job_group(vertex), description):
            if self._context.verify:
                check_reads(self._context, self.results, vertex, setup)
            try:
                run = self._run(vertex, setup, session, scan_sessions)
            except Exception as error:
                if not layouts.is_repartition_refused(error):
                    raise
                for decision in self._context.decisions.of(vertex.node_ids, DecisionKind.VERTEX_PARALLELISM):
                    self._context.decisions.settle(
                        decision.id,
                        instead="its inputs are shuffled inside the step",
                        because="Spark requires another partitioning for an operator with several inputs",
                    )
                run = self._run(vertex, replace(setup, has_common_layout=False), session, scan_sessions)
        # A result without stages has not run: its readers run it with these sessions, so the sessions are not reused.
        if not isinstance(run.result, StagedResult) or run.result.stages:
            for used_session in (session, *scan_sessions.values()):
                sessions.give_back(used_session)
        return run

    def _run(
        self, vertex: JobVertex, setup: VertexSetup, session: Session, scan_sessions: Mapping[int, Session]
    ) -> VertexRun:
        context, graph = self._context, self._context.graph
        builder = FragmentBuilder(context, self._leaves, self._filters, setup, session, scan_sessions, graph)
        logical = builder.build(vertex)
        if vertex.tail_id in context.sinks:
            return VertexRun(None, *self.sinks.write(vertex, session, logical))
        (edge, *_) = graph.out_edges(vertex.tail_id)  # all consumers read the same result
        result = write_output(context, self._broadcasts, self._batches, session, logical, edge, setup)
        self.results.add(vertex.tail_id, result)
        return VertexRun(result, result.tasks, result.input_tasks)

    def _session_settings(self, vertex: JobVertex, setup: VertexSetup) -> dict[str, str]:
        settings = {
            "spark.sql.shuffle.partitions": str(setup.subpartitions),
            "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(setup.subpartitions),
        }
        is_sliced = any(isinstance(read, SlicedRead) for read in setup.edges.values())
        if vertex.tail_id in self._context.sinks and is_sliced:
            # The rows of a task belong to few files: with all files open, the task need not sort them by partition.
            settings["spark.sql.maxConcurrentOutputFileWriters"] = str(_MAX_OPEN_FILES)
        sources = (self._context.plan.sources.get(node_id) for node_id in vertex.node_ids)
        if any(source is not None and isinstance(source.scan, NativeQuery) for source in sources):
            settings["spark.sql.leafNodeDefaultParallelism"] = "1"  # a task writes the rows that the driver holds
        tops = (self._context.plan.nodes[node_id].top for node_id in vertex.node_ids)
        if any(has_late_values(top) for top in tops if top is not None):  # such values may fail if computed early
            settings["spark.sql.subexpressionElimination.enabled"] = "false"
        return settings

    def channel_reports(self, vertex: JobVertex) -> list[dict[str, Any]]:
        """Return the latest report of each task of an adaptive exchange in a vertex, see `ConsumerStage.reports`."""
        graph, stages = self._context.graph, self._context.plan.consumer_stages
        by_task: dict[int, dict[str, Any]] = {}
        for edge in (edge for node_id in vertex.node_ids for edge in graph.in_edges(node_id)):
            if edge.target_id in stages and isinstance(edge.partitioner, _REPORTING_PARTITIONERS):
                reports = stages[edge.target_id].reports()
                latest = max((report["stage"] for report in reports), default=0)  # earlier jobs may share the stage
                by_task |= {report["index"]: report for report in reports if report["stage"] == latest}
        return [by_task[index] for index in sorted(by_task)]

    def release(self) -> None:
        """Release all results, so that Spark can clean up their shuffle files, and close all sources."""
        self.results.release()
        self._broadcasts.release()
        self._filters.release()
        for source in self._context.plan.sources.values():
            name = source.coordinator.name
            with track_work(f"closing {name}", name):
                source.scan.close()


def check_reads(context: JobContext, results: ResultStore, vertex: JobVertex, setup: VertexSetup) -> None:
    """Raise `VerificationError` if a vertex would not read each row of its divided inputs and sources once."""
    for source in (context.plan.sources[n] for n in vertex.node_ids if n in context.plan.sources):
        if isinstance(source.scan, VerifiableSplits):
            check_splits(source.coordinator.name, source.scan.rows_not_read_once())
    sliced: dict[int, dict[str, SlicedRead]] = {}
    for edge in (job_edge.stream_edge for job_edge in vertex.inputs):
        result = results.finished(edge.source_id)
        if is_broadcast(edge) or not isinstance(result, StagedResult):  # such results are always read whole
            continue
        match setup.read_of(edge.id):
            case CoalescedRead(ranges, merge_ranges):
                check_ranges(f"the input {edge.id} of {vertex.name}", ranges, result.subpartitions)
                for index, chunks in merge_ranges.items():
                    check_ranges(f"subpartition {index} of the input {edge.id}", chunks, result.tasks or 0)
            case SlicedRead() as read:
                sliced.setdefault(context.plan.groups[edge.id], {})[edge.id] = read
    for reads in sliced.values():
        staged = {edge_id: results.staged(context.graph.edge(edge_id).source_id) for edge_id in reads}
        check_slices(
            vertex.name,
            {edge_id: read.tasks for edge_id, read in reads.items()},
            {edge_id: result.sizes[0].tolist() for edge_id, result in staged.items()},
            {edge_id: result.tasks or 0 for edge_id, result in staged.items()},
        )


_VERIFY_NOTE = (
    "; execution.verify checks the exchanged rows but not the computed values, which execution.shadow compares with "
    "plain Spark"
)


def write_output(
    context: JobContext,
    broadcasts: Broadcasts,
    batches: PythonBatches,
    session: Session,
    logical: LogicalPlan,
    edge: StreamEdge,
    setup: VertexSetup,
) -> Result:
    """Run a plan, and write its rows in the form that the consumer of an edge reads."""
    plan = context.plan.edges[edge.id]
    match plan.write:
        case WriteKind.BROADCAST if plan.operator is not None:
            return broadcasts.run_and_broadcast(session, logical, edge)
        case WriteKind.SIDE if setup.slots > 1:
            logical = logical.hashed_in_slots(plan.keys, plan.spread_by, setup.subpartitions, setup.slots)
        case WriteKind.SIDE:
            logical = logical.hashed_by(plan.keys, setup.subpartitions)
        case WriteKind.OPERATOR if plan.operator is not None:
            logical = fragment.rebuild(plan.operator, {plan.child: logical})
        case _:
            logical = logical.rebalanced(setup.subpartitions)
    consumer = context.graph.node(edge.target_id).operator
    aggregates_first = isinstance(consumer, AggregateOperator) and consumer.aggregates_first
    native = None if context.native is None else context.native.rewriter()
    try:
        with batches.limit_if_needed(session, logical, edge.source_id):
            return exchange.write(session, logical, pre_aggregated=aggregates_first, native=native)
    finally:
        if native is not None and context.native is not None:
            native.close()
            _record_native(context, edge, native, context.native.engine.name)


def _record_native(context: JobContext, edge: StreamEdge, native: FragmentRewriter, engine: str) -> None:
    """Record which parts of a vertex's plan the native engine computed, and why Spark computed the other parts."""
    node = NodeRef(edge.source_id, context.graph.node(edge.source_id).name)
    if native.failure is not None and not native.fragments:
        context.decisions.record(Choice(DecisionKind.NATIVE, node, "Spark", native.failure))
    for part in native.fragments:
        problem = part.declined_reason or native.failure
        action = f"{display_name(part.table)} is read" if part.table else "what was exchanged as columns is computed"
        if problem is None:
            chosen, sentence = engine, f"{action} by {engine}, in Spark's Python workers"
            sentence += _VERIFY_NOTE * context.verify  # no note if `verify` is False
            reason = f"every operation on its rows before the exchange gives the same values in {engine} as in Spark"
        else:
            chosen, reason, sentence = "Spark", problem, f"{action} by Spark, not by {engine}: {problem}"
        # If the engine did not compute the part, no value of the option changes that.
        explanation = Explanation(sentence, NATIVE.key if problem is None else None)
        context.decisions.record(Choice(DecisionKind.NATIVE, node, chosen, reason, explanation=explanation))
