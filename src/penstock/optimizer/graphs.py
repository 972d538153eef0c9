"""Functions on stream graphs that several strategies use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph import JoinOperator, JoinType, Side, StreamEdge, StreamEdgeUpdateRequest, StreamGraph, StreamNode
from penstock.graph.labels import has_user_name, join_name, side_name, tables_of
from penstock.graph.partitioner import BroadcastPartitioner, ForwardForConsecutiveHashPartitioner, HashPartitioner

if TYPE_CHECKING:
    from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """An equi-join in a stream graph, with its input edges."""

    node: StreamNode
    operator: JoinOperator
    left: StreamEdge
    right: StreamEdge

    @property
    def id(self) -> int:
        """The id of the node."""
        return self.node.id

    @property
    def type(self) -> JoinType:
        """The join type."""
        return self.operator.type

    @property
    def edges(self) -> dict[Side, StreamEdge]:
        """The input edges, by side."""
        return {Side.LEFT: self.left, Side.RIGHT: self.right}

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the rows come from."""
        return tables_of(self.operator)

    def name(self, first: Side = Side.LEFT) -> str:
        """Return the name of the join in explanations; it starts with the tables of the side `first`."""
        return self.node.name if has_user_name(self.node) else join_name(self.operator, first)

    def side_name(self, side: Side) -> str:
        """Return the name of a side in explanations."""
        return side_name(self.operator, side)

    def side_names(self, side: Side) -> tuple[str, str]:
        """Return distinct names in explanations for a side and the opposite side."""
        name, opposite = self.side_name(side), self.side_name(side.other)
        return ("one side", "the other side") if name == opposite else (name, opposite)

    def results(self, context: StrategyContext) -> dict[Side, ResultInfo]:
        """Return the outputs of the sides that have finished."""
        results = {side: context.result(edge.source_id) for side, edge in self.edges.items()}
        return {side: result for side, result in results.items() if result is not None}

    @property
    def is_shuffled(self) -> bool:
        """Whether both sides are hash partitioned, each by an exchange before this join or by an earlier exchange."""
        kinds = (HashPartitioner, ForwardForConsecutiveHashPartitioner)
        return all(isinstance(edge.partitioner, kinds) for edge in (self.left, self.right))

    @property
    def broadcast_side(self) -> Side | None:
        """The side that is broadcast, or None if no side or both sides are."""
        sides = [side for side, edge in self.edges.items() if is_broadcast(edge)]
        return sides[0] if len(sides) == 1 else None


def equi_join(graph: StreamGraph, node_id: int) -> EquiJoin | None:
    """Return a node as an equi-join, or None if it has another operator."""
    node = graph.node(node_id)
    if not isinstance(node.operator, JoinOperator):
        return None
    edges = {edge.type_number: edge for edge in graph.in_edges(node_id)}
    return EquiJoin(node, node.operator, edges[Side.LEFT.input_number], edges[Side.RIGHT.input_number])


def equi_joins(graph: StreamGraph) -> Iterator[EquiJoin]:
    """Return all equi-joins of a graph in topological order."""
    return (join for node in graph if (join := equi_join(graph, node.id)) is not None)


def joins_behind(graph: StreamGraph, node_ids: tuple[int, ...]) -> Iterator[EquiJoin]:
    """Return the equi-joins that directly read the output of any of the nodes, without operators in between."""
    targets = dict.fromkeys(edge.target_id for node_id in node_ids for edge in graph.out_edges(node_id))
    return (join for target in targets if (join := equi_join(graph, target)) is not None)


def is_hashed(edge: StreamEdge) -> bool:
    """Whether an edge is a hash exchange."""
    return isinstance(edge.partitioner, HashPartitioner)


def is_broadcast(edge: StreamEdge) -> bool:
    """Whether an edge broadcasts its rows."""
    return isinstance(edge.partitioner, BroadcastPartitioner)


def broadcast_to(graph: StreamGraph, node_id: int) -> list[int]:
    """Return the nodes to which the vertex of a node broadcasts its rows; empty if any out edge is not a broadcast."""
    for edge in chained_edges(graph, node_id):
        node_id = edge.target_id
    outgoing = graph.out_edges(node_id)
    return [edge.target_id for edge in outgoing] if all(map(is_broadcast, outgoing)) else []


def hash_exchanges_of(
    finished: OperatorsFinished, context: StrategyContext
) -> Iterator[tuple[StreamEdge, StreamNode, ResultInfo]]:
    """Yield the hash exchanges of finished results that no vertex reads yet, with the reading node and the result."""
    for node_id, result in finished.results.items():
        for edge in context.stream_graph.out_edges(node_id):
            if is_hashed(edge) and not context.is_frozen(edge.target_id):
                yield edge, context.stream_graph.node(edge.target_id), result


def chained_edges(graph: StreamGraph, node_id: int) -> Iterator[StreamEdge]:
    """Yield the edges from a node downstream to the end of its vertex, each to the only consumer of a node."""
    while (outgoing := graph.out_edges(node_id)) and outgoing[0].is_forward:
        yield outgoing[0]
        node_id = outgoing[0].target_id


def relying_edges(graph: StreamGraph, node_id: int) -> list[StreamEdge]:
    """Return the chained edges downstream of a node that rely on the hash partitioning of its rows."""
    edges = chained_edges(graph, node_id)
    return [edge for edge in edges if isinstance(edge.partitioner, ForwardForConsecutiveHashPartitioner)]


def restore_hash_requests(edges: Sequence[StreamEdge]) -> list[StreamEdgeUpdateRequest]:
    """Return requests that turn chained edges back into hash exchanges."""
    return [
        StreamEdgeUpdateRequest(edge.id, edge.partitioner.hash)
        for edge in edges
        if isinstance(edge.partitioner, ForwardForConsecutiveHashPartitioner)
    ]


def crosses_exchange(graph: StreamGraph, node_id: int, target_id: int, *, unless_reached: bool = False) -> bool:
    """Whether rows pass an exchange on the path from a node to a downstream node.

    If the path branches or ends before it reaches the downstream node, return whether rows have passed an exchange by
    then; if they have not, return `unless_reached`.
    """
    current, crossed = node_id, False
    while current != target_id:
        outgoing = graph.out_edges(current)
        if len(outgoing) != 1:
            return crossed or unless_reached
        crossed = crossed or not outgoing[0].is_forward
        current = outgoing[0].target_id
    return crossed
