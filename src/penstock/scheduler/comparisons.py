"""Compares what was foreseen of a vertex with what came, once it has run."""

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

_OF_SOURCES = (DecisionKind.SOURCE_PARALLELISM, DecisionKind.VERTEX_PARALLELISM)


def compare_run(context: JobContext, vertex: JobVertex, run: VertexRun, results: ResultStore) -> None:
    """Add what came to the estimates of decisions about a vertex that has written its result.

    The last stage of a vertex with a sink may run later, by whoever wants the rows.
    """
    if run.result is None:
        return
    size = run.result.data_bytes if isinstance(run.result, BroadcastResult) else run.result.size_in_bytes
    if size is not None:
        _compare_broadcast(context, vertex, size)
    waiting = [one for one in context.decisions.of(vertex.node_ids) if _is_open(one)]
    if not waiting:
        return
    try:
        _compare_sources(context, vertex, waiting, results)
        _compare_filters(context, vertex, waiting, results)
    except Exception:
        log.info("what %s has read cannot be compared with what was foreseen", vertex.name, exc_info=True)


def _is_open(decision: Decision) -> bool:
    return decision.told is not None and decision.told.estimate is not None and decision.told.estimate.came is None


def _compare_broadcast(context: JobContext, vertex: JobVertex, size: int) -> None:
    for edge in context.graph.out_edges(vertex.tail_id):
        if isinstance(edge.partitioner, BroadcastPartitioner):
            build = Side.of_input(edge.type_number)
            for decision in context.decisions.of((edge.target_id,), DecisionKind.BROADCAST):
                if decision.chosen == build:
                    context.decisions.compare(decision.id, size)


def _compare_sources(context: JobContext, vertex: JobVertex, waiting: list[Decision], results: ResultStore) -> None:
    """Compare the rows that were read.

    Not the bytes: Spark counts those that the thread of a task has read, and parquet reads most of them on others.
    """
    about_sources = [one for one in waiting if one.kind in _OF_SOURCES]
    if about_sources:
        scanned = results.scanned(vertex)
        sources = {node_id for node_id in vertex.node_ids if node_id in context.plan.sources}
        # DuckDB does not count what it reads.
        read = sum(scanned.values()) if sources and scanned.keys() >= sources else None
        for decision in about_sources:
            context.decisions.compare(decision.id, read)


def _compare_filters(context: JobContext, vertex: JobVertex, waiting: list[Decision], results: ResultStore) -> None:
    """Compare the part of its rows that a source kept: the least that a filter kept, if others left out rows too."""
    by_source: dict[int, list[Decision]] = {}
    for decision in waiting:
        if decision.kind is DecisionKind.DYNAMIC_FILTER:
            source = _source_below(context, decision.nodes[0])
            if source is not None:
                by_source.setdefault(source, []).append(decision)
    kept = results.kept(vertex) if by_source else {}
    for source, decisions in by_source.items():
        scan = context.graph.node(source).operator
        assert isinstance(scan, ScanOperator)
        if source not in kept or not scan.rows:
            continue
        part = kept[source] / scan.rows
        is_alone = len(decisions) == 1 and _filters_nothing(context.plan.sources[source])
        for decision in decisions:
            if is_alone or _is_below(decision, part):
                context.decisions.compare(decision.id, part, is_least=not is_alone)


def _is_below(decision: Decision, part: float) -> bool:
    """Whether a filter has kept more than was foreseen, when it and others together kept this part."""
    estimate = None if decision.told is None else decision.told.estimate
    return estimate is not None and estimate.foreseen < part


def _source_below(context: JobContext, node_id: int) -> int | None:
    """Return the source that a filter stands right above, None if something else lies between."""
    graph = context.graph
    if node_id in context.plan.sources:
        above = [graph.node(edge.target_id).operator for edge in graph.out_edges(node_id)]
        return None if any(isinstance(one, CalcOperator) and not one.is_cheap for one in above) else node_id
    node, inputs = graph.node(node_id), graph.in_edges(node_id)
    if not isinstance(node.operator, CalcOperator) or not node.operator.is_cheap or len(inputs) != 1:
        return None
    return inputs[0].source_id if inputs[0].source_id in context.plan.sources else None


def _filters_nothing(source: SourcePlan) -> bool:
    """Whether the query itself leaves out no rows of a source but those with nulls."""
    node: LogicalNode = source.filtered
    while node.children:
        if node.name == "Filter" and not node.only_not_null:
            return False
        node = node.children[0]
    return True
