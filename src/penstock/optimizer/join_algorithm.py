"""Chooses between a shuffled hash join and a sort-merge join once both sides are measured.

Before::

    orders   ──HASH──┐
                     ├─▶ join (sort-merge)      lineitem's tasks would read 3 MiB of orders each
    lineitem ──HASH──┘

After::

    orders   ──HASH──┐
                     ├─▶ join (shuffled hash, builds left)
    lineitem ──HASH──┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.graph import OperatorKind, StreamNodeUpdateRequest
from penstock.optimizer.broadcast_join import table_memory
from penstock.optimizer.graphs import is_shuffled, joins_behind, sides
from penstock.optimizer.joins import SIDES, may_hash
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph import StreamGraph, StreamNode

HASH_SIDE = "hash_side"
"""The property of a join that names the side of which every task makes a hash table."""


def largest_table(result: ResultInfo, all_bytes: int, volume: int) -> int:
    """Return the memory of the largest hash table that a task would make of a result, -1 if unknown.

    Parameters
    ----------
    result
        The measured side.
    all_bytes
        Bytes as written of both sides.
    volume
        Bytes of both sides that a task reads.
    """
    memory = table_memory(result)
    if memory < 0 or not result.total:
        return memory
    packed = volume * result.total // max(all_bytes, 1)
    return memory * max(packed, int(result.subpartitions.max())) // result.total


def hash_side(join_type: str, results: Mapping[str, ResultInfo], volume: int, limit: int) -> tuple[str, int]:
    """Return the side to make hash tables of and the memory of the largest, or an empty text.

    The smaller side of those the join type allows, if its largest table fits; of equal ones the right.
    """
    total = sum(result.total for result in results.values())
    tables = {side: largest_table(results[side], total, volume) for side in SIDES if may_hash(join_type, side)}
    fitting = [side for side, table in tables.items() if 0 <= table <= limit]
    if not fitting:
        return "", max(tables.values(), default=-1)
    best = min(reversed(fitting), key=lambda side: results[side].total)
    return best, tables[best]


def may_merge_tasks(graph: StreamGraph, node_id: int) -> bool:
    """Whether an operator chained behind a node may run several of its tasks as one (a coalesce).

    Such a task holds the hash tables of all of them until it ends.
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
    """Looks at every pending join of which both sides have been measured."""

    def __init__(self) -> None:
        self._results: dict[int, ResultInfo] = {}

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Choose the algorithm of joins that are about to become vertices."""
        self._results.update(finished.results)
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id) and HASH_SIDE not in join.properties:
                changed |= self._choose(join, context)
        return changed

    def _choose(self, join: StreamNode, context: StrategyContext) -> bool:
        edges = sides(context.stream_graph, join)
        results = {side: self._results[e.source_id] for side, e in edges.items() if e.source_id in self._results}
        if not is_shuffled(edges) or len(results) < len(SIDES) or join.properties.get("hinted"):
            return False
        if may_merge_tasks(context.stream_graph, join.id):
            return False
        limits = context.resources
        side, table = hash_side(str(join.properties["join_type"]), results, limits.volume_per_task, limits.task_memory)
        request = StreamNodeUpdateRequest(join.id, properties={HASH_SIDE: side})
        if not context.modify_stream_node([request]):
            return False
        if side:
            reason = f"the largest table of a task takes {show_bytes(table)} of {show_bytes(limits.task_memory)}"
            context.decide(DecisionKind.JOIN_ALGORITHM, join, f"hash join, builds {side}", reason)
        return True
