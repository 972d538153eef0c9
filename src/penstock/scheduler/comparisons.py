"""Compares the estimates of a vertex with its actual figures, once it has run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.graph import CalcOperator, ScanOperator, Side
from penstock.graph.partitioner import BroadcastPartitioner
from penstock.spark.exchange import BroadcastResult

if TYPE_CHECKING:
    from penstock.decisions import Decision
    from penstock.execution.context import JobContext
    from penstock.execution.results import ResultStore
    from penstock.execution.vertex_runner import VertexRun
    from penstock.graph import JobVertex
    from penstock.planner.plan import SourcePlan
    from penstock.spark.plans import LogicalNode

log = logging.getLogger("penstock.scheduler")

_SOURCE_KINDS = (DecisionKind.SOURCE_PARALLELISM, DecisionKind.VERTEX_PARALLELISM)


def compare_run(context: JobContext, vertex: JobVertex, run: VertexRun, results: ResultStore) -> None:
    """Add the actual figures to the estimates of decisions about a vertex that has written its result.

    The last stage of a vertex with a sink may run later, when its rows are consumed.
    """
    if run.result is None:
        return
    size = run.result.data_bytes if isinstance(run.result, BroadcastResult) else run.result.size_in_bytes
    if size is not None:
        _compare_broadcast(context, vertex, size)
    open_decisions = [decision for decision in context.decisions.of(vertex.node_ids) if _is_open(decision)]
    if not open_decisions:
        return
    try:
        _compare_sources(context, vertex, open_decisions, results)
        _compare_filters(context, vertex, open_decisions, results)
    except Exception:
        log.info("cannot compare what %s has read with its estimates", vertex.name, exc_info=True)


def _is_open(decision: Decision) -> bool:
    return (
        decision.explanation is not None
        and decision.explanation.estimate is not None
        and decision.explanation.estimate.actual is None
    )


def _compare_broadcast(context: JobContext, vertex: JobVertex, size: int) -> None:
    for edge in context.graph.out_edges(vertex.tail_id):
        if isinstance(edge.partitioner, BroadcastPartitioner):
            build = Side.of_input(edge.type_number)
            for decision in context.decisions.of((edge.target_id,), DecisionKind.BROADCAST):
                if decision.chosen == build:
                    context.decisions.compare(decision.id, size)


def _compare_sources(
    context: JobContext, vertex: JobVertex, open_decisions: list[Decision], results: ResultStore
) -> None:
    """Compare the estimated rows of sources with the rows that were read.

    Bytes are not compared: Spark counts only what the thread of a task reads, and Parquet reads mostly on others.
    """
    source_decisions = [decision for decision in open_decisions if decision.kind in _SOURCE_KINDS]
    if source_decisions:
        scanned = results.scanned(vertex)
        sources = {node_id for node_id in vertex.node_ids if node_id in context.plan.sources}
        # DuckDB does not count the rows that it reads.
        rows = sum(scanned.values()) if sources and scanned.keys() >= sources else None
        for decision in source_decisions:
            context.decisions.compare(decision.id, rows)


def _compare_filters(
    context: JobContext, vertex: JobVertex, open_decisions: list[Decision], results: ResultStore
) -> None:
    """Compare the estimated selectivity of dynamic filters with the share of rows that their source retained.

    If other filters removed rows too, this share is a lower bound for each filter.
    """
    by_source: dict[int, list[Decision]] = {}
    for decision in open_decisions:
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
            if is_only_filter or _is_underestimated(decision, selectivity):
                context.decisions.compare(decision.id, selectivity, is_least=not is_only_filter)


def _is_underestimated(decision: Decision, selectivity: float) -> bool:
    """Whether a filter retained more than estimated, even though other filters contributed to this selectivity."""
    estimate = None if decision.explanation is None else decision.explanation.estimate
    return estimate is not None and estimate.estimated < selectivity


def _filtered_source(context: JobContext, node_id: int) -> int | None:
    """Return the source directly below a filter, None if another operator is in between."""
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
        if node.name == "Filter" and not node.only_not_null:
            return False
        node = node.children[0]
    return True
