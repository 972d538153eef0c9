"""Chooses between a shuffled hash join and a sort-merge join once both sides are measured.

Before::

    orders   ──HASH──┐
                     ├─▶ join (sort-merge)      each task would read 3 MiB of orders
    lineitem ──HASH──┘

After::

    orders   ──HASH──┐
                     ├─▶ join (shuffled hash, build side left)
    lineitem ──HASH──┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.base.units import show_bytes
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import JoinType, OperatorKind, ShuffledJoin, Side, StreamNodeUpdateRequest
from penstock.optimizer.broadcast_join import hash_table_bytes
from penstock.optimizer.graphs import EquiJoin, chained_edges, joins_behind
from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext, StreamGraphOptimizationStrategy


def largest_hash_table(result: ResultInfo, all_bytes: int, volume: int) -> int | None:
    """Return the bytes in memory of the largest hash table that a task would build from a result, or None if unknown.

    `all_bytes` are the written (compressed) bytes of both sides, of which a task should read `volume`.
    """
    memory = hash_table_bytes(result)
    if memory is None or not result.total:
        return memory
    task_bytes = min(volume * result.total // max(all_bytes, 1), result.total)  # at most the whole side
    return memory * max(task_bytes, int(result.subpartitions.max())) // result.total


def smallest_hash_table(
    join_type: JoinType, results: Mapping[Side, ResultInfo], volume: int, limit: int
) -> tuple[Side, int] | None:
    """Return the smaller build side whose hash tables fit in `limit` bytes each, and the bytes of the largest of them.

    None if no side that the join type allows fits. If both sides have the same size, the right side is preferred.
    """
    total = sum(result.total for result in results.values())
    fitting = [
        (side, memory)
        for side in reversed(Side)
        if join_type.can_hash(side)
        and (memory := largest_hash_table(results[side], total, volume)) is not None
        and memory <= limit
    ]
    return min(fitting, key=lambda hash_table: results[hash_table[0]].total, default=None)


class JoinAlgorithm(StreamGraphOptimizationStrategy):
    """Chooses the algorithm of each pending join once both sides are measured."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Choose the algorithm of the joins that read finished outputs."""
        joins = joins_behind(context.stream_graph, finished.ids)
        return sum(self._choose(join, context) for join in joins if not context.is_frozen(join.id)) > 0

    def _choose(self, join: EquiJoin, context: StrategyContext) -> bool:
        graph, resources, results = context.stream_graph, context.resources, join.results(context)
        if join.operator.is_hinted or join.operator.strategy.algorithm is not None:
            return False
        if not join.is_shuffled or len(results) < len(Side):
            return False
        # An operator without a translation (OPAQUE) may be a coalesce, whose tasks hold several hash tables at a time.
        if any(graph.node(edge.target_id).kind is OperatorKind.OPAQUE for edge in chained_edges(graph, join.id)):
            return False
        hash_table = smallest_hash_table(join.type, results, resources.volume_per_task, resources.task_memory)
        side, memory = hash_table or (None, 0)
        algorithm = ShuffledJoin.SORT_MERGE if side is None else ShuffledJoin.SHUFFLED_HASH
        strategy = replace(join.operator.strategy, algorithm=algorithm, build=side)
        request = StreamNodeUpdateRequest(join.id, operator=join.operator.with_strategy(strategy))
        if side is None:
            return context.modify_stream_node([request])  # Spark's default, so no decision is recorded
        size, limit = show_bytes(memory), show_bytes(resources.task_memory)
        reason = f"the largest hash table of a task takes {size}; Penstock allows {limit}"
        chosen = f"shuffled hash join, build side {side}"
        explanation = Explanation(
            f"{join.name(side.other)}: hash join instead of sort-merge join, as each task's part of "
            f"{join.side_name(side)} takes at most {size} in memory (limit {limit})",
            tables=join.tables,
        )
        return context.change([request], DecisionKind.JOIN_ALGORITHM, join.node, chosen, reason, explanation)
