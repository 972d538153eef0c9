"""Chooses between a shuffled hash join and a sort-merge join once both sides are measured.

Before::

    orders   ──HASH──┐
                     ├─▶ join (sort-merge)      lineitem's tasks would read 3 MiB of orders each
    lineitem ──HASH──┘

After::

    orders   ──HASH──┐
                     ├─▶ join (shuffled hash, build side left)
    lineitem ──HASH──┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind, Explanation
from penstock.graph import JoinType, OperatorKind, ShuffledJoin, Side, StreamNodeUpdateRequest
from penstock.optimizer.broadcast_join import table_memory
from penstock.optimizer.graphs import joins_behind
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph import StreamGraph
    from penstock.optimizer.graphs import EquiJoin


@dataclass(frozen=True, slots=True)
class HashTable:
    """The hash tables that the tasks of a join would build from a side, and the bytes of the largest."""

    side: Side
    memory: int


def largest_table(result: ResultInfo, all_bytes: int, volume: int) -> int | None:
    """Return the memory of the largest hash table that a task would build from a result, or None if unknown.

    `all_bytes` are the bytes of both sides as written, of which a task should read `volume`.
    """
    memory = table_memory(result)
    if memory is None or not result.total:
        return memory
    packed = min(volume * result.total // max(all_bytes, 1), result.total)  # a task reads at most the whole side
    return memory * max(packed, int(result.subpartitions.max())) // result.total


def smallest_table(
    join_type: JoinType, results: Mapping[Side, ResultInfo], volume: int, limit: int
) -> HashTable | None:
    """Return the hash tables of the smaller build side that the join type allows and that fits, or None.

    If both sides have the same size, the right side is preferred.
    """
    total = sum(result.total for result in results.values())
    fitting = [
        HashTable(side, memory)
        for side in reversed(Side)
        if join_type.can_hash(side)
        and (memory := largest_table(results[side], total, volume)) is not None
        and memory <= limit
    ]
    return min(fitting, key=lambda table: results[table.side].total, default=None)


def may_merge_tasks(graph: StreamGraph, node_id: int) -> bool:
    """Whether an operator chained after a node may coalesce several of its tasks.

    A coalesced task holds the hash tables of all of them until it ends.
    """
    todo = [node_id]
    while todo:
        for edge in graph.out_edges(todo.pop()):
            if edge.is_forward:
                if graph.node(edge.target_id).kind is OperatorKind.OPAQUE:
                    return True
                todo.append(edge.target_id)
    return False


class JoinAlgorithm(StreamGraphOptimizationStrategy):
    """Chooses the algorithm of each pending join once both sides are measured."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Choose the algorithm of the joins that read finished outputs."""
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id) and join.operator.strategy.algorithm is None:
                changed |= self._choose(join, context)
        return changed

    def _choose(self, join: EquiJoin, context: StrategyContext) -> bool:
        results = {
            side: result for side, edge in join.edges.items() if (result := context.result(edge.source_id)) is not None
        }
        if not join.is_shuffled or len(results) < len(Side) or join.operator.is_hinted:
            return False
        if may_merge_tasks(context.stream_graph, join.id):
            return False
        limits = context.resources
        table = smallest_table(join.type, results, limits.volume_per_task, limits.task_memory)
        algorithm = ShuffledJoin.SORT_MERGE if table is None else ShuffledJoin.SHUFFLED_HASH
        strategy = replace(join.operator.strategy, algorithm=algorithm, build=None if table is None else table.side)
        request = StreamNodeUpdateRequest(join.id, operator=join.operator.with_strategy(strategy))
        if table is None:
            return context.modify_stream_node([request])
        limit = show_bytes(limits.task_memory)
        reason = f"the largest hash table of a task takes {show_bytes(table.memory)}; Penstock allows {limit}"
        chosen = f"shuffled hash join, build side {table.side}"
        explanation = Explanation(
            f"{join.name(table.side.other)}: hash join instead of sort-merge join, as each task's part of "
            f"{join.side_name(table.side)} takes at most {show_bytes(table.memory)} in memory (limit {limit})",
            tables=join.tables,
        )
        return context.change([request], DecisionKind.JOIN_ALGORITHM, join.node, chosen, reason, explanation)
