"""Functions on a stream graph that several strategies use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph import JoinOperator, JoinType, Side, StreamEdgeUpdateRequest
from penstock.graph.partitioner import (
    BroadcastPartitioner,
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
)
from penstock.graph.wording import called, is_named, join_name, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.graph import StreamEdge, StreamGraph, StreamNode
    from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """An equi-join in its graph.

    Parameters
    ----------
    node, operator
        Its node, and the node's operator.
    left, right
        The edges that lead to it.
    """

    node: StreamNode
    operator: JoinOperator
    left: StreamEdge
    right: StreamEdge

    @property
    def id(self) -> int:
        """Its node's id."""
        return self.node.id

    @property
    def type(self) -> JoinType:
        """Its type."""
        return self.operator.type

    @property
    def edges(self) -> dict[Side, StreamEdge]:
        """The edges that lead to it, by side."""
        return {Side.LEFT: self.left, Side.RIGHT: self.right}

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that its rows come from."""
        return tables_of(self.operator)

    def name(self, first: Side = Side.LEFT) -> str:
        """Return what people call it, one side first."""
        return self.node.name if is_named(self.node) else join_name(self.operator, first)

    def called(self, side: Side) -> str:
        """Return what people call a side of it."""
        return called(self.operator, side)

    def sides(self, side: Side) -> tuple[str, str]:
        """Return what people call a side of it, and the other one; two that are called alike are told apart."""
        one, other = self.called(side), self.called(side.other)
        return ("one side", "the other side") if one == other else (one, other)

    @property
    def is_shuffled(self) -> bool:
        """Whether both sides are hash partitioned, by an exchange for this join or by an earlier one."""
        kinds = (HashPartitioner, ForwardForConsecutiveHashPartitioner)
        return all(isinstance(edge.partitioner, kinds) for edge in (self.left, self.right))

    @property
    def broadcast_side(self) -> Side | None:
        """The one side that is broadcast, or None."""
        found = [side for side, edge in self.edges.items() if is_broadcast(edge)]
        return found[0] if len(found) == 1 else None


def equi_join(graph: StreamGraph, node_id: int) -> EquiJoin | None:
    """Return a node as an equi-join, or None if it is not one."""
    node = graph.node(node_id)
    if not isinstance(node.operator, JoinOperator):
        return None
    edges = {edge.type_number: edge for edge in graph.in_edges(node_id)}
    return EquiJoin(node, node.operator, edges[Side.LEFT.input_number], edges[Side.RIGHT.input_number])


def equi_joins(graph: StreamGraph) -> Iterator[EquiJoin]:
    """Return all equi-joins of a graph in topological order."""
    return (join for node in graph if (join := equi_join(graph, node.id)) is not None)


def joins_behind(graph: StreamGraph, node_ids: tuple[int, ...]) -> Iterator[EquiJoin]:
    """Return the equi-joins that read what some nodes wrote."""
    targets = dict.fromkeys(edge.target_id for node_id in node_ids for edge in graph.out_edges(node_id))
    return (join for target in targets if (join := equi_join(graph, target)) is not None)


def is_hashed(edge: StreamEdge) -> bool:
    """Whether an edge is a hash exchange of its own."""
    return isinstance(edge.partitioner, HashPartitioner)


def is_broadcast(edge: StreamEdge) -> bool:
    """Whether an edge is broadcast."""
    return isinstance(edge.partitioner, BroadcastPartitioner)


def broadcast_to(graph: StreamGraph, node_id: int) -> list[int]:
    """Return the nodes that a node's vertex broadcasts its rows to; none if others read them too."""
    while len(outgoing := graph.out_edges(node_id)) == 1 and outgoing[0].is_forward:
        node_id = outgoing[0].target_id
    return [edge.target_id for edge in outgoing] if all(map(is_broadcast, outgoing)) else []


def hash_exchanges_of(
    finished: OperatorsFinished, context: StrategyContext
) -> Iterator[tuple[StreamEdge, StreamNode, ResultInfo]]:
    """Yield the hash exchanges that finished results may still be read through, each with its reader and its result."""
    for node_id, result in finished.results.items():
        for edge in context.stream_graph.out_edges(node_id):
            if is_hashed(edge) and not context.is_frozen(edge.target_id):
                yield edge, context.stream_graph.node(edge.target_id), result


def relying_edges(graph: StreamGraph, node_id: int) -> list[StreamEdge]:
    """Return the chained edges after a node that need its rows hash partitioned."""
    found, todo = [], [node_id]
    while todo:
        for edge in graph.out_edges(todo.pop()):
            if edge.is_forward:
                todo.append(edge.target_id)
            if isinstance(edge.partitioner, ForwardForConsecutiveHashPartitioner):
                found.append(edge)
    return found


def hashed_again(edges: list[StreamEdge]) -> list[StreamEdgeUpdateRequest]:
    """Return requests that turn chained edges back into hash exchanges."""
    return [
        StreamEdgeUpdateRequest(edge.id, edge.partitioner.hash)
        for edge in edges
        if isinstance(edge.partitioner, ForwardForConsecutiveHashPartitioner)
    ]


def crosses_exchange(graph: StreamGraph, node_id: int, target_id: int, *, unless_reached: bool = False) -> bool:
    """Whether rows go through an exchange between a node and a node after it.

    Parameters
    ----------
    unless_reached
        What to return if the path ends before the other node, without an exchange.
    """
    current, crossed = node_id, False
    while current != target_id:
        outgoing = graph.out_edges(current)
        if len(outgoing) != 1:
            return crossed or unless_reached
        crossed = crossed or not outgoing[0].is_forward
        current = outgoing[0].target_id
    return crossed
