"""Small questions about joins in a stream graph that several strategies ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import OperatorKind, StreamEdgeUpdateRequest
from penstock.graph.partitioner import (
    BroadcastPartitioner,
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
)
from penstock.optimizer.joins import NUMBER, SIDES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.graph import StreamEdge, StreamGraph, StreamNode


def sides(graph: StreamGraph, join: StreamNode) -> dict[str, StreamEdge]:
    """Return the one edge of each side of a join; empty for what is no equi-join of two inputs."""
    if join.kind is not OperatorKind.JOIN or "join_type" not in join.properties:
        return {}
    edges = {edge.type_number: edge for edge in graph.in_edges(join.id)}
    return {side: edges[NUMBER[side]] for side in SIDES} if len(edges) == len(SIDES) else {}


def is_shuffled(edges: dict[str, StreamEdge]) -> bool:
    """Whether both sides of a join lie hashed, each written for it or chained to it."""
    kinds = (HashPartitioner, ForwardForConsecutiveHashPartitioner)
    return bool(edges) and all(isinstance(edge.partitioner, kinds) for edge in edges.values())


def is_hashed(edge: StreamEdge) -> bool:
    """Whether an edge is a hash exchange of its own."""
    return isinstance(edge.partitioner, HashPartitioner)


def is_broadcast(edge: StreamEdge) -> bool:
    """Whether an edge is broadcast."""
    return isinstance(edge.partitioner, BroadcastPartitioner)


def joins_behind(graph: StreamGraph, node_ids: tuple[int, ...]) -> Iterator[StreamNode]:
    """Return the joins that read what some nodes wrote."""
    seen = set()
    for node_id in node_ids:
        for edge in graph.out_edges(node_id):
            node = graph.node(edge.target_id)
            if node.kind is OperatorKind.JOIN and node.id not in seen:
                seen.add(node.id)
                yield node


def broadcast_to(graph: StreamGraph, node_id: int) -> list[int]:
    """Return the nodes that get a node's rows broadcast by its vertex; none if they go elsewhere as well."""
    while len(outgoing := graph.out_edges(node_id)) == 1 and outgoing[0].is_forward:
        node_id = outgoing[0].target_id
    return [edge.target_id for edge in outgoing] if all(map(is_broadcast, outgoing)) else []


def relying_edges(graph: StreamGraph, node_id: int) -> list[StreamEdge]:
    """Return the chained edges behind a node that rely on how its rows lie hashed."""
    found, todo = [], [node_id]
    while todo:
        for edge in graph.out_edges(todo.pop()):
            if edge.is_forward:
                todo.append(edge.target_id)
            if isinstance(edge.partitioner, ForwardForConsecutiveHashPartitioner):
                found.append(edge)
    return found


def hashed_again(edges: list[StreamEdge]) -> list[StreamEdgeUpdateRequest]:
    """Return requests that make hash exchanges of chained edges."""
    return [
        StreamEdgeUpdateRequest(edge.id, edge.partitioner.hash)
        for edge in edges
        if isinstance(edge.partitioner, ForwardForConsecutiveHashPartitioner)
    ]


def crosses_exchange(graph: StreamGraph, node_id: int, target_id: int, *, unless_reached: bool = False) -> bool:
    """Whether rows go through an exchange on their way from a node to a node behind it.

    Parameters
    ----------
    unless_reached
        What to answer where the way ends without an exchange before the other node is reached.
    """
    current, crossed = node_id, False
    while current != target_id:
        outgoing = graph.out_edges(current)
        if len(outgoing) != 1:
            return crossed or unless_reached
        crossed = crossed or not outgoing[0].is_forward
        current = outgoing[0].target_id
    return crossed
