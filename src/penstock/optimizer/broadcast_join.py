"""Broadcasts a join side whose measured size is small, and chains the join to the other side.

Before::

    orders ──HASH──┐
                   ├─▶ join ─▶ ...
    users  ──HASH──┘                   users has finished with 3 MiB

After::

    orders ──FORWARD───┐
                       ├─▶ join ─▶ ...
    users ──BROADCAST──┘               RESCALE instead of FORWARD if orders cannot share a vertex with join

The allowed sides, the order in which they are tried and the threshold follow Flink's adaptive broadcast join.
"""

from __future__ import annotations

from penstock.base.units import show_bytes
from penstock.config.options import BROADCAST_JOIN_STRATEGY
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import CalcOperator, ScanOperator, Side, StreamEdge, StreamEdgeUpdateRequest
from penstock.graph.partitioner import BROADCAST, FORWARD, ForwardForUnspecifiedPartitioner
from penstock.optimizer.graphs import EquiJoin, is_hashed, joins_behind, relying_edges, restore_hash_requests
from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext, StreamGraphOptimizationStrategy

_OBVIOUS_FACTOR = 10
"""A side with at least this many times the limit is obviously too large, so users are not shown the refusal."""
_OVERHEAD_PER_ROW = 32
"""The approximate bytes that a row in a hash table takes in addition to its values."""


def hash_table_bytes(result: ResultInfo) -> int | None:
    """Return the bytes in memory of a hash table of a result, or None if its rows were not measured."""
    if result.memory is None or result.rows is None:
        return None
    return result.memory + _OVERHEAD_PER_ROW * result.rows


def _limit_text(context: StrategyContext) -> str:
    return f"{show_bytes(context.resources.broadcast_threshold)} ({context.resources.broadcast_option})"


def _explanation(join: EquiJoin, side: Side, size: int, refusal: str, context: StrategyContext) -> Explanation:
    """Return the explanation of a broadcast; called before the graph changes.

    `refusal` is the reason why the other side is not broadcast; empty if there is none, or if users do not see it.
    """
    probe, resources, location = join.edges[side.other], context.resources, join.name(side.other)
    name, other_name = join.side_names(side)
    measured = f"{show_bytes(size)} compressed (limit {show_bytes(resources.broadcast_threshold)})"
    measured += f"; {other_name} is not, as {refusal}" if refusal else ""
    sentence, saved = f"{location}: {name} is broadcast, as it is {measured}", None
    if not is_hashed(probe):
        sentence += "; the rows of the other side come from the previous step without a shuffle"
    elif context.is_frozen(probe.source_id):
        sentence += f"; {other_name} was already shuffled when {name} was measured"
    elif len(context.stream_graph.out_edges(probe.source_id)) > 1:
        sentence += f"; {other_name} is still written, because several steps read it"
    else:
        saved = _scanned_bytes(probe.source_id, context)
        sentence = f"{location}: broadcast instead of shuffle, as {name} is {measured}"
        sentence += f"; about {show_bytes(saved)} of {other_name} not shuffled" if saved else ""
    return Explanation(sentence, resources.broadcast_option, not_shuffled=saved, tables=join.tables, location=location)


def _scanned_bytes(node_id: int, context: StrategyContext) -> int | None:
    """Return the bytes of a node's source if only chained Calcs are in between; None if not, or if unknown."""
    graph = context.stream_graph
    node = graph.node(node_id)
    while not isinstance(node.operator, ScanOperator):
        edges = graph.in_edges(node.id)
        if not isinstance(node.operator, CalcOperator) or len(edges) != 1 or not edges[0].is_forward:
            return None
        node = graph.node(edges[0].source_id)
    return node.operator.bytes


class AdaptiveBroadcastJoin(StreamGraphOptimizationStrategy):
    """Broadcasts a join side once its measured size is small enough."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[int, Side], str] = {}
        """The reason why a side is not broadcast, by the id of its join and the side; empty if users do not see it."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Turn joins with a small side into broadcast joins."""
        if context.config.get(BROADCAST_JOIN_STRATEGY) == "NONE":
            return False
        joins = joins_behind(context.stream_graph, finished.ids)
        return sum(self._try_broadcast(join, context) for join in joins if not context.is_frozen(join.id)) > 0

    def _try_broadcast(self, join: EquiJoin, context: StrategyContext) -> bool:
        if not join.is_shuffled or join.operator.is_hinted:  # a join hint of the user takes precedence
            return False
        for side, build in join.edges.items():
            result = context.result(build.source_id)
            if result is None or not is_hashed(build) or not join.type.can_build(side):
                continue
            if not self._is_small_enough(join, side, result, context):
                continue
            requests = self._broadcast_requests(build, join.edges[side.other], context)
            reason = f"this side has {show_bytes(result.total)}, below the limit of {_limit_text(context)}"
            figures = {"bytes": result.total} | ({} if result.rows is None else {"rows": result.rows})
            explanation = _explanation(join, side, result.total, self._refusals.get((join.id, side.other), ""), context)
            if context.change(requests, DecisionKind.BROADCAST, join.node, side, reason, explanation, **figures):
                return True
        return False

    def _is_small_enough(self, join: EquiJoin, side: Side, result: ResultInfo, context: StrategyContext) -> bool:
        """Whether a side can be broadcast; if not, record why."""
        resources, table_bytes, is_shown = context.resources, hash_table_bytes(result), True
        (name, _), size, limit_text = join.side_names(side), show_bytes(result.total), ""
        if resources.broadcast_threshold < 0:
            reason = f"broadcasts are turned off ({resources.broadcast_option} = {resources.broadcast_threshold})"
            refusal = "broadcasts are turned off"
        elif not result.total < resources.broadcast_threshold:
            reason = f"it has {show_bytes(result.total)}, not below the limit of {_limit_text(context)}"
            refusal, limit_text = f"it is {size} compressed", f" (limit {show_bytes(resources.broadcast_threshold)})"
            is_shown = result.total < _OBVIOUS_FACTOR * resources.broadcast_threshold
        elif table_bytes is not None and table_bytes > resources.broadcast_memory:
            allowed = show_bytes(resources.broadcast_memory)
            memory = show_bytes(table_bytes)
            reason = f"its hash table would take {memory} in memory, more than the {allowed} that Penstock allows"
            refusal = f"its {size} compressed would take {memory} in memory (limit {allowed})"
        else:
            return True
        if (join.id, side) not in self._refusals:
            self._refusals[join.id, side] = refusal if is_shown else ""
            location = join.name(side.other)
            sentence = f"{location}: {name} is not broadcast, as {refusal}{limit_text}"
            explanation = Explanation(
                sentence, resources.broadcast_option, tables=join.tables, is_shown=is_shown, location=location
            )
            context.decide(DecisionKind.BROADCAST, join.node, f"not the {side} side", reason, explanation)
        return False

    def _broadcast_requests(
        self, build: StreamEdge, probe: StreamEdge, context: StrategyContext
    ) -> list[StreamEdgeUpdateRequest]:
        """Return the requests that broadcast the build side, and chain the join to the probe side if possible."""
        requests = [StreamEdgeUpdateRequest(build.id, BROADCAST)]
        if is_hashed(probe):
            requests.append(StreamEdgeUpdateRequest(probe.id, ForwardForUnspecifiedPartitioner()))
            if not context.is_frozen(probe.source_id):  # else its rows are hash partitioned as those edges need
                requests += restore_hash_requests(relying_edges(context.stream_graph, build.target_id))
        elif probe.is_forward:  # the join no longer relies on the hash partitioning
            requests.append(StreamEdgeUpdateRequest(probe.id, FORWARD))
        return requests
