"""Broadcasts a join side that has been measured and is small, and chains the join to the other side.

Before::

    orders ──HASH──┐
                   ├─▶ join ─▶ ...
    users  ──HASH──┘                   users has finished with 3 MiB

After::

    orders ──FORWARD───┐
                       ├─▶ join ─▶ ...
    users ──BROADCAST──┘               RESCALE instead of FORWARD if orders has been written already

Sides, order and thresholds follow Flink's adaptive broadcast join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_JOIN_STRATEGY
from penstock.decisions import DecisionKind, Told
from penstock.graph import CalcOperator, ScanOperator, Side, StreamEdgeUpdateRequest
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

_FAR_TOO_LARGE = 10
"""Nobody asks why a side was not broadcast that has this many times the bytes allowed."""
_BYTES_PER_ROW = 32
"""The memory a hash table needs for a row beyond the row's own bytes, roughly."""


def table_memory(result: ResultInfo) -> int | None:
    """Return the bytes of memory that a hash table of a result needs, or None if its rows were not counted."""
    if result.memory is None or result.rows is None:
        return None
    return result.memory + _BYTES_PER_ROW * result.rows


def _limit(context: StrategyContext) -> str:
    return f"{show_bytes(context.resources.broadcast_threshold)} ({context.resources.broadcast_option})"


def _told(join: EquiJoin, side: Side, size: int, refused: str, context: StrategyContext) -> Told:
    """Return how people are told of a broadcast, before it is done: the other side may not have been shuffled yet.

    Why the other side was not broadcast comes with it, if that was `refused`.
    """
    probe, limits, place = join.edges[side.other], context.resources, join.name(side.other)
    what, other = join.sides(side)
    measured = f"{show_bytes(size)} compressed (limit {show_bytes(limits.broadcast_threshold)})"
    measured += f"; {other} is not, as {refused}" if refused else ""
    sentence, saved = f"{place}: {what} is broadcast, as it is {measured}", None
    if not is_hashed(probe):
        sentence += "; the other rows come from the step before as they are"
    elif context.is_frozen(probe.source_id):
        sentence += f"; {other} had been shuffled before that was known"
    elif len(context.stream_graph.out_edges(probe.source_id)) > 1:
        sentence += f"; {other} is written all the same, as several steps read it"
    else:
        saved = _scanned_bytes(probe.source_id, context)
        sentence = f"{place}: broadcast instead of shuffle, as {what} is {measured}"
        sentence += f"; about {show_bytes(saved)} of {other} not shuffled" if saved else ""
    return Told(sentence, limits.broadcast_option, not_shuffled=saved, tables=join.tables, place=place)


def _scanned_bytes(node_id: int, context: StrategyContext) -> int | None:
    """Return the bytes of a source whose rows come to a node as they are read; None behind joins and aggregates."""
    graph = context.stream_graph
    node = graph.node(node_id)
    while not isinstance(node.operator, ScanOperator):
        edges = graph.in_edges(node.id)
        if not isinstance(node.operator, CalcOperator) or len(edges) != 1 or not edges[0].is_forward:
            return None
        node = graph.node(edges[0].source_id)
    return node.operator.bytes


class AdaptiveBroadcastJoin(StreamGraphOptimizationStrategy):
    """Broadcasts a join side once it is measured and small enough."""

    def __init__(self) -> None:
        self._refused: dict[tuple[int, Side], str] = {}
        """Why a side of a join is not broadcast, as its other side's broadcast tells; empty if nobody asks."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Turn joins with a small side into broadcast joins."""
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
            reason = f"this side has {show_bytes(result.total)}, below the limit of {_limit(context)}"
            figures = {"bytes": result.total} | ({} if result.rows is None else {"rows": result.rows})
            told = _told(join, side, result.total, self._refused.get((join.id, side.other), ""), context)
            if context.change(requests, DecisionKind.BROADCAST, join.node, side, reason, told, **figures):
                return True
        return False

    def _fits(self, join: EquiJoin, side: Side, result: ResultInfo, context: StrategyContext) -> bool:
        limits, table, seen = context.resources, table_memory(result), True
        (what, _), size, limit = join.sides(side), show_bytes(result.total), ""
        if limits.broadcast_threshold < 0:
            why = f"broadcasts are turned off ({limits.broadcast_option} = {limits.broadcast_threshold})"
            told = "broadcasts are turned off"
        elif not result.total < limits.broadcast_threshold:
            why = f"it has {show_bytes(result.total)}, not below the limit of {_limit(context)}"
            told, limit = f"it is {size} compressed", f" (limit {show_bytes(limits.broadcast_threshold)})"
            seen = result.total < _FAR_TOO_LARGE * limits.broadcast_threshold
        elif table is not None and table > limits.broadcast_memory:
            allowed = show_bytes(limits.broadcast_memory)
            why = (
                f"its hash table would take {show_bytes(table)} in memory, more than the {allowed} that Penstock allows"
            )
            told = f"its {size} compressed would take {show_bytes(table)} in memory (limit {allowed})"
        else:
            return True
        if (join.id, side) not in self._refused:
            self._refused[join.id, side] = told if seen else ""
            place = join.name(side.other)
            sentence = f"{place}: {what} is not broadcast, as {told}{limit}"
            words = Told(sentence, limits.broadcast_option, tables=join.tables, is_shown=seen, place=place)
            context.decide(DecisionKind.BROADCAST, join.node, f"not the {side} side", why, words)
        return False

    def _switch(self, build: StreamEdge, probe: StreamEdge, context: StrategyContext) -> list[StreamEdgeUpdateRequest]:
        """Return the requests that broadcast one side, and chain the join to the other where that can be."""
        requests = [StreamEdgeUpdateRequest(build.id, BROADCAST)]
        if is_hashed(probe):
            requests.append(StreamEdgeUpdateRequest(probe.id, ForwardForUnspecifiedPartitioner()))
            if not context.is_frozen(probe.source_id):
                requests += hashed_again(relying_edges(context.stream_graph, build.target_id))
        elif probe.is_forward:  # the join no longer needs its rows hashed
            requests.append(StreamEdgeUpdateRequest(probe.id, FORWARD))
        return requests
