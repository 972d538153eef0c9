"""Splits skewed subpartitions of a join into slices by upstream task; every slice reads the other side's subpartition.

Before::

    clicks ──HASH──┐
                   ├─▶ join            one task reads 5 GiB of clicks of one user, the others 40 MiB
    users  ──HASH──┘

After::

    clicks ──HASH, subpartitions may be split──┐
                                               ├─▶ join      20 tasks read 250 MiB each, and that user's row
    users  ──HASH──────────────────────────────┘

What counts as skewed and which sides may be split follows Flink's adaptive skewed join. Unlike there, an aggregate
after the join that needs all rows of a key in one task does not forbid the split if its functions can be merged: its
partial results are then exchanged once more (`FORCED` does that with every operator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SKEWED_FACTOR, SKEWED_JOIN_STRATEGY, SKEWED_THRESHOLD
from penstock.decisions import DecisionKind, Told
from penstock.graph import AggregateOperator, Side, StreamEdgeUpdateRequest
from penstock.optimizer.graphs import hashed_again, is_hashed, joins_behind, relying_edges
from penstock.optimizer.skew import LARGEST, median_size, skew_threshold
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.graph import StreamEdge, StreamGraph
    from penstock.optimizer.graphs import EquiJoin


def skewed_subpartitions(result: ResultInfo, config: Configuration) -> list[int]:
    """Return the indices of a result's skewed subpartitions."""
    factor = config.get(SKEWED_FACTOR)
    assert isinstance(factor, float)
    limit = skew_threshold(result.subpartitions.tolist(), factor, config.integer(SKEWED_THRESHOLD))
    return [int(i) for i in (result.subpartitions > limit).nonzero()[0]]


def obstacle(graph: StreamGraph, relying: list[StreamEdge], called: str | None = None) -> str | None:
    """Return why operators that need all rows of a key in one task forbid a split, or None.

    Parameters
    ----------
    graph, relying
        The graph, and the edges that lead to them.
    called
        What the reason calls the operator, if not by its name.
    """
    for edge in relying:
        node = graph.node(edge.target_id)
        name = called or f"{node.name} after it"
        if not isinstance(node.operator, AggregateOperator):
            return f"{name} needs all rows of a key in one task"
        if node.operator.not_mergeable is not None:
            return f"{name} cannot be merged from partial results: {node.operator.not_mergeable}"
    return None


class AdaptiveSkewedJoin(StreamGraphOptimizationStrategy):
    """Splits skewed sides of each pending join once both sides are measured."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Let skewed sides be split."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id) and join.id not in self._seen:
                changed |= self._look_at(join, context)
        return changed

    def _look_at(self, join: EquiJoin, context: StrategyContext) -> bool:
        graph, edges = context.stream_graph, join.edges
        results = {side: found for side, e in edges.items() if (found := context.result(e.source_id)) is not None}
        if not all(map(is_hashed, edges.values())) or len(results) < len(Side):
            return False
        self._seen.add(join.id)
        skewed = {side: skewed_subpartitions(result, context.config) for side, result in results.items()}
        split = [side for side in Side if skewed[side] and join.operator.can_split(side)]
        for side in Side:
            if skewed[side] and side not in split:
                chosen, why = f"{side} side not split", _why_not(join, side)
                context.decide(DecisionKind.SKEW, join.node, chosen, why, _not_split(join, side, why))
        if not split:
            return False
        relying = relying_edges(graph, join.id)
        why_not = None if context.config.get(SKEWED_JOIN_STRATEGY) == "FORCED" else obstacle(graph, relying)
        if why_not is not None:
            context.decide(DecisionKind.SKEW, join.node, "not split", why_not, _not_split(join, split[0], why_not))
            return False
        again = hashed_again(relying)
        changed = False
        for side in split:
            sizes = results[side].subpartitions.tolist()
            largest, median = max(sizes), median_size(sizes)
            reason = f"its largest partition has {show_bytes(largest)}, the median {show_bytes(median)}"
            chosen = f"{side} side, {len(skewed[side])} of {len(sizes)} partitions split"
            requests = [StreamEdgeUpdateRequest(edges[side].id, intra_input_correlated=False), *again]
            figures = {LARGEST: largest, "median": median}
            told = Told(
                f"{join.name(side)}: {len(skewed[side])} of {len(sizes)} partitions of {join.called(side)} are split "
                f"among several tasks, as the largest has {show_bytes(largest)}, the median {show_bytes(median)}",
                SKEWED_THRESHOLD.key,
                tables=join.tables,
            )
            if context.change(requests, DecisionKind.SKEW, join.node, chosen, reason, told, **figures):
                again, changed = [], True
        return changed


def _not_split(join: EquiJoin, side: Side, why: str) -> Told:
    sentence = f"{join.name(side)}: the large partitions of {join.called(side)} are not split, as {why}"
    return Told(sentence, SKEWED_JOIN_STRATEGY.key, tables=join.tables)


def _why_not(join: EquiJoin, side: Side) -> str:
    if not join.type.can_split(side):
        return f"a {join.type.words} join needs all rows of a key from this side in one task"
    hints = " and ".join(filter(None, (join.operator.left.hint, join.operator.right.hint)))
    return f"with the hint {hints} Spark may read the whole side in every task, so slices would repeat rows"
