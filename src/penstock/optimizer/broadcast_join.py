"""Broadcasts a join side that was measured to be small, and chains the join to the other side.

Before::

    orders ──HASH──┐
                   ├─▶ join ─▶ ...
    users  ──HASH──┘                   users has finished with 3 MiB

After::

    orders ──FORWARD───┐
                       ├─▶ join ─▶ ...
    users ──BROADCAST──┘               where orders has been written already: RESCALE

Sides, order and thresholds are those of Flink's adaptive broadcast join, restated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_JOIN_STRATEGY
from penstock.decisions import DecisionKind
from penstock.graph import StreamEdgeUpdateRequest
from penstock.graph.partitioner import BROADCAST, FORWARD, ForwardForUnspecifiedPartitioner
from penstock.optimizer.graphs import hashed_again, is_hashed, is_shuffled, joins_behind, relying_edges, sides
from penstock.optimizer.joins import SIDES, may_build, other
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.graph import StreamEdge, StreamNode

_BYTES_PER_ROW = 32
"""What a hash table takes for a row besides its bytes, roughly."""


def table_memory(result: ResultInfo) -> int:
    """Return the bytes a hash table of a result would take in memory, -1 if its rows were not counted."""
    return result.memory + _BYTES_PER_ROW * result.rows if min(result.memory, result.rows) >= 0 else -1


class AdaptiveBroadcastJoin(StreamGraphOptimizationStrategy):
    """Looks at every join of which a side has just been measured."""

    def __init__(self) -> None:
        self._results: dict[int, ResultInfo] = {}
        self._told: set[tuple[int, str]] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Switch joins; each as soon as one side of it is small enough."""
        self._results.update(finished.results)
        if context.config.get(BROADCAST_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id):
                changed |= self._try(join, context)
        return changed

    def _try(self, join: StreamNode, context: StrategyContext) -> bool:
        edges = sides(context.stream_graph, join)
        if not is_shuffled(edges) or join.properties.get("hinted"):  # the user has said how to join
            return False
        for side in SIDES:
            build = edges[side]
            result = self._results.get(build.source_id)
            if result is None or not is_hashed(build) or not may_build(str(join.properties["join_type"]), side):
                continue
            if self._fits(join, side, result, context) and self._switch(build, edges[other(side)], context):
                limit = show_bytes(context.resources.broadcast_threshold)
                reason = f"{show_bytes(result.total)} were measured, less than the threshold of {limit}"
                figures = {"bytes": result.total, "rows": result.rows}
                context.decide(DecisionKind.BROADCAST, join, side, reason, **figures)
                return True
        return False

    def _fits(self, join: StreamNode, side: str, result: ResultInfo, context: StrategyContext) -> bool:
        limits = context.resources
        if not result.total < limits.broadcast_threshold:
            why = f"{show_bytes(result.total)} were measured, not less than {show_bytes(limits.broadcast_threshold)}"
        elif table_memory(result) > limits.broadcast_memory:
            table = show_bytes(table_memory(result))
            why = f"as a table it would take {table} of {show_bytes(limits.broadcast_memory)}"
        else:
            return True
        if (join.id, side) not in self._told:
            self._told.add((join.id, side))
            context.decide(DecisionKind.BROADCAST, join, f"not the {side} side", why)
        return False

    def _switch(self, build: StreamEdge, probe: StreamEdge, context: StrategyContext) -> bool:
        requests = [StreamEdgeUpdateRequest(build.id, BROADCAST)]
        if is_hashed(probe):
            requests.append(StreamEdgeUpdateRequest(probe.id, ForwardForUnspecifiedPartitioner()))
            if not context.is_frozen(probe.source_id):
                requests += hashed_again(relying_edges(context.stream_graph, build.target_id))
        elif probe.is_forward:  # the join itself does not rely on the hash any longer
            requests.append(StreamEdgeUpdateRequest(probe.id, FORWARD))
        return context.modify_stream_edge(requests)
