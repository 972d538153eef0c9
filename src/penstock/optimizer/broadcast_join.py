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
from penstock.graph import Side, StreamEdgeUpdateRequest
from penstock.graph.partitioner import BROADCAST, FORWARD, ForwardForUnspecifiedPartitioner
from penstock.optimizer.graphs import hashed_again, is_hashed, joins_behind, relying_edges
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.graph import StreamEdge
    from penstock.optimizer.graphs import EquiJoin

_BYTES_PER_ROW = 32
"""What a hash table takes for a row besides its bytes, roughly."""


def table_memory(result: ResultInfo) -> int | None:
    """Return the bytes a hash table of a result would take in memory, or None if its rows were not counted."""
    if result.memory is None or result.rows is None:
        return None
    return result.memory + _BYTES_PER_ROW * result.rows


class AdaptiveBroadcastJoin(StreamGraphOptimizationStrategy):
    """Looks at every join of which a side has just been measured."""

    def __init__(self) -> None:
        self._refused: set[tuple[int, Side]] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Switch joins; each as soon as one side of it is small enough."""
        if context.config.get(BROADCAST_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id):
                changed |= self._try(join, context)
        return changed

    def _try(self, join: EquiJoin, context: StrategyContext) -> bool:
        if not join.is_shuffled or join.operator.is_hinted:  # the user has said how to join
            return False
        for side, build in join.edges.items():
            result = context.result(build.source_id)
            if result is None or not is_hashed(build) or not join.type.can_build(side):
                continue
            if not self._fits(join, side, result, context):
                continue
            requests = self._switch(build, join.edges[side.other], context)
            limit = show_bytes(context.resources.broadcast_threshold)
            reason = f"{show_bytes(result.total)} were measured, less than the threshold of {limit}"
            figures = {"bytes": result.total} | ({} if result.rows is None else {"rows": result.rows})
            if context.change(requests, DecisionKind.BROADCAST, join.node, side, reason, **figures):
                return True
        return False

    def _fits(self, join: EquiJoin, side: Side, result: ResultInfo, context: StrategyContext) -> bool:
        limits, table = context.resources, table_memory(result)
        if not result.total < limits.broadcast_threshold:
            why = f"{show_bytes(result.total)} were measured, not less than {show_bytes(limits.broadcast_threshold)}"
        elif table is not None and table > limits.broadcast_memory:
            why = f"as a table it would take {show_bytes(table)} of {show_bytes(limits.broadcast_memory)}"
        else:
            return True
        if (join.id, side) not in self._refused:
            self._refused.add((join.id, side))
            context.decide(DecisionKind.BROADCAST, join.node, f"not the {side} side", why)
        return False

    def _switch(self, build: StreamEdge, probe: StreamEdge, context: StrategyContext) -> list[StreamEdgeUpdateRequest]:
        """Return the requests that broadcast one side, and chain the join to the other where that can be."""
        requests = [StreamEdgeUpdateRequest(build.id, BROADCAST)]
        if is_hashed(probe):
            requests.append(StreamEdgeUpdateRequest(probe.id, ForwardForUnspecifiedPartitioner()))
            if not context.is_frozen(probe.source_id):
                requests += hashed_again(relying_edges(context.stream_graph, build.target_id))
        elif probe.is_forward:  # the join itself does not rely on the hash any longer
            requests.append(StreamEdgeUpdateRequest(probe.id, FORWARD))
        return requests
