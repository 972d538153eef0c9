"""Splits skewed subpartitions of a join into slices by upstream task.

The task of a slice also reads the whole corresponding subpartition of the other side.

Before::

    clicks ──HASH──┐
                   ├─▶ join            a task reads 5 GiB of clicks of a user, the others 40 MiB
    users  ──HASH──┘

After::

    clicks ──HASH, subpartitions may be split──┐
                                               ├─▶ join      20 tasks read 250 MiB each, and that user's row
    users  ──HASH──────────────────────────────┘

The skew threshold and the sides that may be split follow the adaptive skewed join of Flink. In contrast to Flink, an
aggregate after the join that needs all rows of a key in the same task does not prevent the split if its partial results
can be merged: they are exchanged once more. The option `FORCED` splits before any operator and exchanges its input.
"""

from __future__ import annotations

from penstock.base.units import show_bytes
from penstock.config.options import SKEWED_JOIN_STRATEGY, SKEWED_THRESHOLD
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import Side, StreamEdgeUpdateRequest
from penstock.optimizer import skew
from penstock.optimizer.graphs import EquiJoin, is_hashed, joins_behind, relying_edges, restore_hash_requests
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy


class AdaptiveSkewedJoin(StreamGraphOptimizationStrategy):
    """Splits skewed sides of each pending join once both sides are measured."""

    def __init__(self) -> None:
        self._decided: set[int] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Split skewed sides."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":
            return False
        joins = joins_behind(context.stream_graph, finished.ids)
        return sum(self._split(join, context) for join in joins if not context.is_frozen(join.id)) > 0

    def _split(self, join: EquiJoin, context: StrategyContext) -> bool:
        graph, edges, results = context.stream_graph, join.edges, join.results(context)
        if join.id in self._decided or not all(map(is_hashed, edges.values())) or len(results) < len(Side):
            return False
        self._decided.add(join.id)
        skewed = {side: skew.skewed_subpartitions(result, context.config) for side, result in results.items()}
        splittable = [side for side in Side if skewed[side] and join.operator.can_split(side)]
        for side in Side:
            if skewed[side] and side not in splittable:
                chosen, reason = f"{side} side not split", _refusal(join, side)
                context.decide(DecisionKind.SKEW, join.node, chosen, reason, _refusal_explanation(join, side, reason))
        if not splittable:
            return False
        dependents = relying_edges(graph, join.id)  # edges downstream that rely on this hash partitioning
        is_forced = context.config.get(SKEWED_JOIN_STRATEGY) == "FORCED"
        obstacle = None if is_forced else skew.split_obstacle(graph, dependents)
        if obstacle is not None:
            explanation = _refusal_explanation(join, splittable[0], obstacle)
            context.decide(DecisionKind.SKEW, join.node, "not split", obstacle, explanation)
            return False
        restore_requests = restore_hash_requests(dependents)
        changed = False
        for side in splittable:
            sizes = results[side].subpartitions.tolist()
            largest, median = max(sizes), skew.median_size(sizes)
            reason = f"its largest partition has {show_bytes(largest)} and the median is {show_bytes(median)}"
            chosen = f"{side} side, {len(skewed[side])} of {len(sizes)} partitions split"
            requests = [StreamEdgeUpdateRequest(edges[side].id, intra_input_correlated=False), *restore_requests]
            figures = {skew.LARGEST_FIGURE: largest, "median": median}
            explanation = Explanation(
                f"{join.name(side)}: {len(skewed[side])} of {len(sizes)} partitions of {join.side_name(side)} are "
                f"split among several tasks, as the largest has {show_bytes(largest)} and the median is "
                f"{show_bytes(median)}",
                SKEWED_THRESHOLD.key,
                tables=join.tables,
            )
            if context.change(requests, DecisionKind.SKEW, join.node, chosen, reason, explanation, **figures):
                restore_requests, changed = [], True  # the first change has restored the exchanges
        return changed


def _refusal_explanation(join: EquiJoin, side: Side, reason: str) -> Explanation:
    sentence = f"{join.name(side)}: the large partitions of {join.side_name(side)} are not split, as {reason}"
    return Explanation(sentence, SKEWED_JOIN_STRATEGY.key, tables=join.tables)


def _refusal(join: EquiJoin, side: Side) -> str:
    if not join.type.can_split(side):
        return f"a {join.type.display_name} join needs all rows of a key from this side in one task"
    hints = " and ".join(filter(None, (join.operator.left.hint, join.operator.right.hint)))
    return f"with the hint {hints} Spark may read the whole side in every task, so slices would repeat rows"
