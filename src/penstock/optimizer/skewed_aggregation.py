"""Splits a hot key of an aggregate over several tasks, and merges their partial results.

Before::

    clicks ──HASH(user)──▶ Repartition ──FORWARD──▶ Aggregate      one task reads 5 GiB of one user

After::

    clicks ──HASH(user), subpartitions may be split──▶ Repartition ──HASH(user), partial──▶ Aggregate

That concerns only rows that are hash partitioned before the aggregate. Everywhere else Spark aggregates before the
exchange, and exchanges a distinct count by its values first. Then a hot group is large only where its partial results
hold its values: those of an exact percentile, or of `collect_set`. They are merged in pieces before the aggregate::

    clicks ─▶ partial ──HASH(user)──▶ Aggregate                          one task merges 1000 partial results
    clicks ─▶ partial ──HASH(user)──▶ pieces ──HASH(user)──▶ Aggregate   31 tasks merge 32 each, one merges 31

`AdaptiveSkewedJoin` handles joins, `AdaptiveSkewedWindow` windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SKEWED_JOIN_STRATEGY
from penstock.decisions import DecisionKind, Told
from penstock.graph import AggregateOperator, OperatorKind, StreamEdgeUpdateRequest, WindowOperator
from penstock.optimizer.graphs import hash_exchanges_of, hashed_again, relying_edges
from penstock.optimizer.merging import WORTH_IT, most_times_faster
from penstock.optimizer.skew import LARGEST
from penstock.optimizer.skewed_join import obstacle, skewed_subpartitions
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
_WORTH_IT = 2
"""A skewed subpartition is split if it is this many times a core's fair share, because a split costs an exchange."""


class AdaptiveSkewedAggregation(StreamGraphOptimizationStrategy):
    """Splits skewed subpartitions before an aggregate and merges its partial results."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Let skewed exchanges before aggregates be split."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for edge, reader, result in hash_exchanges_of(finished, context):
            if reader.kind is OperatorKind.REPARTITION:
                changed |= self._look_at(edge, result, context)
            elif isinstance(reader.operator, AggregateOperator) and reader.operator.keeps_values:
                changed |= self._merge_in_pieces(edge, result, context)
            elif reader.kind in _NEED_WHOLE_GROUPS and not isinstance(reader.operator, WindowOperator):
                self._record_obstacle(edge, result, context)
        return changed

    def _merge_in_pieces(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> bool:
        """Let partial results that hold the values of hot groups be merged in pieces before the aggregate."""
        skewed = skewed_subpartitions(result, context.config)
        if edge.id in self._seen or not skewed:
            return False
        self._seen.add(edge.id)
        node = context.stream_graph.node(edge.target_id)
        called, largest = context.called(node), int(result.subpartitions.max())
        tasks = _tasks_that_wrote(result, int(result.subpartitions.argmax()))
        why_not = _why_not_in_pieces(largest, result.total, tasks, context)
        if why_not:
            told = Told(f"{called}: its hot groups are not merged in pieces, as {why_not}", SKEWED_JOIN_STRATEGY.key)
            context.decide(DecisionKind.SKEW, node, "not split", why_not, told)
            return False
        reason = (
            f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)} "
            f"of partial results from {show_count(tasks, 'task')}"
        )
        chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions merged in pieces before the aggregate"
        told = Told(f"{called}: {chosen}, as {reason}", SKEWED_JOIN_STRATEGY.key)
        request = StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False)
        return context.change([request], DecisionKind.SKEW, node, chosen, reason, told, **{LARGEST: largest})

    def _record_obstacle(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> None:
        """Record why the rows of a hot key stay in one task, if an operator needs them there."""
        why_not = obstacle(context.stream_graph, [edge], "it")
        if why_not and edge.id not in self._seen and skewed_subpartitions(result, context.config):
            self._seen.add(edge.id)
            largest = int(result.subpartitions.max())
            reason = f"{why_not}; the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"
            node = context.stream_graph.node(edge.target_id)
            told = f"{context.called(node)}: its large partitions are not split, as {reason}"
            context.decide(DecisionKind.SKEW, node, "not split", reason, Told(told, SKEWED_JOIN_STRATEGY.key))

    def _look_at(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> bool:
        graph = context.stream_graph
        relying = relying_edges(graph, edge.target_id)
        skewed = skewed_subpartitions(result, context.config)
        if edge.id in self._seen or not skewed or not relying:
            return False
        self._seen.add(edge.id)
        node = graph.node(relying[0].target_id)
        called = context.called(node)
        why_not = obstacle(graph, relying)
        largest, fair = int(result.subpartitions.max()), result.total // context.resources.cores
        if not why_not and largest < _WORTH_IT * fair and context.config.get(SKEWED_JOIN_STRATEGY) != "FORCED":
            why_not = (
                f"its largest partition has {show_bytes(largest)}, less than twice the share of each of "
                f"{show_count(context.resources.cores, 'core')}, so no core waits long for it"
            )
        if why_not:
            told = Told(f"{called}: its large partitions are not split, as {why_not}", SKEWED_JOIN_STRATEGY.key)
            context.decide(DecisionKind.SKEW, node, "not split", why_not, told)
            return False
        request = StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False)
        requests = [request, *hashed_again(relying)]
        reason = f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"
        chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions split, and partial results merged"
        told = Told(f"{called}: {chosen}, as {reason}", SKEWED_JOIN_STRATEGY.key)
        return context.change(requests, DecisionKind.SKEW, node, chosen, reason, told, largest=largest)


def _tasks_that_wrote(result: ResultInfo, index: int) -> int:
    """Return how many tasks wrote anything of a subpartition, 0 if that is not known."""
    return 0 if result.mappers is None else int((result.mappers([index]) > 0).sum())


def _why_not_in_pieces(largest: int, total: int, tasks: int, context: StrategyContext) -> str | None:
    """Return why the partial results of a hot group are better merged in one task, or None."""
    cores = context.resources.cores
    if not tasks:
        return "it is not known which tasks wrote its largest partition"
    if most_times_faster(tasks, cores) < WORTH_IT:
        merged = f"it merges partial results of {show_count(tasks, 'task')} for its largest partition"
        return f"{merged}, too few for pieces on {show_count(cores, 'core')}"
    if largest < WORTH_IT * total // cores and context.config.get(SKEWED_JOIN_STRATEGY) != "FORCED":
        return (
            f"its largest partition has {show_bytes(largest)}, less than {WORTH_IT} times the share of each of "
            f"{show_count(cores, 'core')}, so no core waits long for it"
        )
    return None
