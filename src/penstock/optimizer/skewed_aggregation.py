"""Splits the hot keys of an aggregate among several tasks, and merges their partial results.

Before::

    clicks ──HASH(user)──▶ Repartition ──FORWARD──▶ Aggregate      a task reads 5 GiB of a user

After::

    clicks ──HASH(user), subpartitions may be split──▶ Repartition ──HASH(user), partial──▶ Aggregate

This applies only to rows that are hash partitioned before the aggregate. Otherwise Spark aggregates before the
exchange, and exchanges a distinct count by its values first. Then a hot group is large only if its partial results hold
the values, as for an exact percentile or `collect_set`. They are merged in chunks before the aggregate::

    clicks ─▶ partial ──HASH(user)──▶ Aggregate                          a task merges 1000 partial results
    clicks ─▶ partial ──HASH(user)──▶ chunks ──HASH(user)──▶ Aggregate   31 tasks merge 32 each, and a task merges 31

`AdaptiveSkewedJoin` handles joins, and `AdaptiveSkewedWindow` handles windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SKEWED_JOIN_STRATEGY
from penstock.decisions import DecisionKind, Explanation
from penstock.graph import AggregateOperator, OperatorKind, StreamEdgeUpdateRequest, WindowOperator
from penstock.optimizer.graphs import hash_exchanges_of, relying_edges, restore_hash_requests
from penstock.optimizer.merging import MIN_SPEEDUP, max_speedup
from penstock.optimizer.skew import LARGEST
from penstock.optimizer.skewed_join import skewed_subpartitions, split_obstacle
from penstock.optimizer.strategy import (
    OperatorsFinished,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from penstock.graph import StreamEdge
    from penstock.optimizer.strategy import ResultInfo


_NEED_WHOLE_GROUPS = frozenset({OperatorKind.AGGREGATE, OperatorKind.GROUPED_MAP, OperatorKind.WINDOW})
_MIN_SKEW = 2
"""The minimum size of a split subpartition relative to an even share per core, because a split costs an exchange."""


class AdaptiveSkewedAggregation(StreamGraphOptimizationStrategy):
    """Splits skewed subpartitions before an aggregate and merges its partial results."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Split skewed exchanges before aggregates."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for edge, reader, result in hash_exchanges_of(finished, context):
            if reader.kind is OperatorKind.REPARTITION:
                changed |= self._split(edge, result, context)
            elif isinstance(reader.operator, AggregateOperator) and reader.operator.keeps_values:
                changed |= self._merge_in_chunks(edge, result, context)
            elif reader.kind in _NEED_WHOLE_GROUPS and not isinstance(reader.operator, WindowOperator):
                self._record_obstacle(edge, result, context)
        return changed

    def _merge_in_chunks(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> bool:
        """Merge partial results that hold the values of hot groups in chunks before the aggregate."""
        skewed = skewed_subpartitions(result, context.config)
        if edge.id in self._seen or not skewed:
            return False
        self._seen.add(edge.id)
        node = context.stream_graph.node(edge.target_id)
        name, largest = context.display_name(node), int(result.subpartitions.max())
        tasks = _writer_count(result, int(result.subpartitions.argmax()))
        refusal = _chunks_refusal(largest, result.total, tasks, context)
        if refusal:
            sentence = f"{name}: its hot groups are not merged in chunks, as {refusal}"
            context.decide(
                DecisionKind.SKEW, node, "not split", refusal, Explanation(sentence, SKEWED_JOIN_STRATEGY.key)
            )
            return False
        reason = (
            f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)} "
            f"of partial results from {show_count(tasks, 'task')}"
        )
        chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions merged in chunks before the aggregate"
        explanation = Explanation(f"{name}: {chosen}, as {reason}", SKEWED_JOIN_STRATEGY.key)
        request = StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False)
        return context.change([request], DecisionKind.SKEW, node, chosen, reason, explanation, **{LARGEST: largest})

    def _record_obstacle(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> None:
        """Record why the rows of a hot key are not split, if an operator needs them in the same task."""
        refusal = split_obstacle(context.stream_graph, [edge], "it")
        if refusal and edge.id not in self._seen and skewed_subpartitions(result, context.config):
            self._seen.add(edge.id)
            largest = int(result.subpartitions.max())
            reason = f"{refusal}; the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"
            node = context.stream_graph.node(edge.target_id)
            sentence = f"{context.display_name(node)}: its large partitions are not split, as {reason}"
            context.decide(
                DecisionKind.SKEW, node, "not split", reason, Explanation(sentence, SKEWED_JOIN_STRATEGY.key)
            )

    def _split(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> bool:
        graph = context.stream_graph
        relying = relying_edges(graph, edge.target_id)
        skewed = skewed_subpartitions(result, context.config)
        if edge.id in self._seen or not skewed or not relying:
            return False
        self._seen.add(edge.id)
        node = graph.node(relying[0].target_id)
        name = context.display_name(node)
        refusal = split_obstacle(graph, relying)
        largest, fair = int(result.subpartitions.max()), result.total // context.resources.cores
        if not refusal and largest < _MIN_SKEW * fair and context.config.get(SKEWED_JOIN_STRATEGY) != "FORCED":
            refusal = (
                f"its largest partition has {show_bytes(largest)}, less than twice the share of each of "
                f"{show_count(context.resources.cores, 'core')}, so splitting it would save little time"
            )
        if refusal:
            sentence = f"{name}: its large partitions are not split, as {refusal}"
            context.decide(
                DecisionKind.SKEW, node, "not split", refusal, Explanation(sentence, SKEWED_JOIN_STRATEGY.key)
            )
            return False
        request = StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False)
        requests = [request, *restore_hash_requests(relying)]
        reason = f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"
        chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions split, and partial results merged"
        explanation = Explanation(f"{name}: {chosen}, as {reason}", SKEWED_JOIN_STRATEGY.key)
        return context.change(requests, DecisionKind.SKEW, node, chosen, reason, explanation, largest=largest)


def _writer_count(result: ResultInfo, index: int) -> int:
    """Return the number of tasks that wrote to a subpartition, or 0 if it is unknown."""
    return 0 if result.mappers is None else int((result.mappers([index]) > 0).sum())


def _chunks_refusal(largest: int, total: int, tasks: int, context: StrategyContext) -> str | None:
    """Return why merging the partial results of a hot group in chunks does not pay off, or None if it does."""
    cores = context.resources.cores
    if not tasks:
        return "the tasks that wrote its largest partition are unknown"
    if max_speedup(tasks, cores) < MIN_SPEEDUP:
        merged = f"it merges partial results of {show_count(tasks, 'task')} for its largest partition"
        return f"{merged}, too few for chunks on {show_count(cores, 'core')}"
    if largest < MIN_SPEEDUP * total // cores and context.config.get(SKEWED_JOIN_STRATEGY) != "FORCED":
        return (
            f"its largest partition has {show_bytes(largest)}, less than {MIN_SPEEDUP} times the share of each of "
            f"{show_count(cores, 'core')}, so splitting it would save little time"
        )
    return None
