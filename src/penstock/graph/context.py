"""The view of the stream graph that strategies get, through which they change its pending part."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import GraphError
from penstock.graph.changes import GraphChange, RefusedChange, StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.labels import started_already
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    RESCALE,
    ForwardForConsecutiveHashPartitioner,
    ForwardForUnspecifiedPartitioner,
    Partitioner,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph.changes import UpdateRequest
    from penstock.graph.manager import AdaptiveGraphManager
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

log = logging.getLogger("penstock.graph")

_SHARED = "several steps read these rows"


class _RefusedError(Exception):
    """A change is refused: the reason for users, and in detail with the names of nodes and edges."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class StreamGraphContext:
    """A view of the stream graph with methods that change its pending part."""

    def __init__(self, owner: AdaptiveGraphManager) -> None:
        self._owner = owner

    @property
    def stream_graph(self) -> StreamGraph:
        """The current graph."""
        return self._owner.graph

    def is_frozen(self, node_id: int) -> bool:
        """Whether a node is part of a job vertex, so that it and its input edges cannot change."""
        return self._owner.is_frozen(node_id)

    def defer(self, node_id: int, until: int) -> bool:
        """Let the vertex of a pending node wait until another node has finished.

        Return False, and change nothing, if the node is frozen or the other node waits for it.
        """
        return self._owner.defer(node_id, until)

    def release(self, node_id: int, until: int) -> bool:
        """Stop letting the vertex of a pending node wait for another node; return False if it does not wait."""
        return self._owner.release(node_id, until)

    def modify_stream_edge(self, requests: Sequence[StreamEdgeUpdateRequest]) -> bool:
        """Change edges: all of the batch, or none; return whether anything changed.

        A request is refused if the edge's target is frozen. A new partitioner is also refused if the edge is FORWARD,
        if the source has several consumers (then only broadcast and rescale are allowed), or if FORWARD would connect
        nodes of different parallelism. The reason of a refusal is written to the log ``penstock.graph``.
        """
        return self._carry_out(self._planned(requests))

    def modify_stream_node(self, requests: Sequence[StreamNodeUpdateRequest]) -> bool:
        """Change nodes: all of the batch, or none; return whether anything changed.

        Changes of frozen nodes are refused. Raise `GraphError` if a request gives a node an operator of another kind.
        """
        return self._carry_out(self._planned(requests))

    def _carry_out(self, planned: GraphChange | RefusedChange) -> bool:
        """Apply a change or record its refusal; return whether anything changed."""
        if isinstance(planned, RefusedChange):
            log.info("change refused, as %s: %s", planned.reason, planned.detail)
            self._owner.refuse(planned)
            return False
        if planned.is_empty:
            return False
        self._owner.commit(planned)
        return True

    def _planned(self, requests: Sequence[UpdateRequest]) -> GraphChange | RefusedChange:
        """Return the change that a batch describes, or its refusal; the graph is not modified."""
        before = graph = self.stream_graph
        nodes, edges = [], []
        try:
            for request in requests:
                match request:
                    case StreamEdgeUpdateRequest():
                        graph = graph.replace(edges=[self._changed_edge(graph, request)])
                        edges.append(request.edge_id)
                    case StreamNodeUpdateRequest():
                        graph = graph.replace(nodes=[self._changed_node(graph, request)])
                        nodes.append(request.node_id)
        except _RefusedError as refusal:
            return RefusedChange(tuple(requests), refusal.reason, detail=str(refusal))
        return replace(GraphChange.between(before, graph, nodes, edges), requests=tuple(requests))

    def _changed_node(self, graph: StreamGraph, request: StreamNodeUpdateRequest) -> StreamNode:
        node = graph.node(request.node_id)
        if self.is_frozen(node.id):
            raise _RefusedError(started_already(node), f"{node.name} is frozen")
        if request.operator is not None and request.operator.kind is not node.kind:
            raise GraphError(f"{node.name} is a {node.kind}, and cannot become a {request.operator.kind}")
        return replace(
            node,
            parallelism=request.parallelism or node.parallelism,
            max_parallelism=request.max_parallelism or node.max_parallelism,
            operator=request.operator or node.operator,
            filters=node.filters if request.filters is None else request.filters,
        )

    def _changed_edge(self, graph: StreamGraph, request: StreamEdgeUpdateRequest) -> StreamEdge:
        edge = graph.edge(request.edge_id)
        if self.is_frozen(edge.target_id):
            raise _RefusedError(started_already(graph.node(edge.target_id)), f"the target of {edge.id} is frozen")
        partitioner = edge.partitioner
        if request.partitioner is not None and request.partitioner != edge.partitioner:
            partitioner = self._changed_partitioner(graph, edge, request.partitioner)
        intra = request.intra_input_correlated
        return replace(
            edge,
            partitioner=partitioner,
            type_number=request.type_number or edge.type_number,
            intra_input_correlated=edge.intra_input_correlated if intra is None else intra,
        )

    def _changed_partitioner(self, graph: StreamGraph, edge: StreamEdge, requested: Partitioner) -> Partitioner:
        if edge.partitioner == FORWARD:
            raise _RefusedError("the rows stay in their task already", f"{edge.id} is FORWARD already")
        obstacle = self._obstacle(graph, edge)
        match requested:
            case ForwardForUnspecifiedPartitioner():
                return FORWARD if obstacle is None else RESCALE
            case ForwardForConsecutiveHashPartitioner():
                return FORWARD if obstacle is None else requested.hash
            case _ if requested == FORWARD and obstacle is not None:
                raise _RefusedError(obstacle, f"the ends of {edge.id} cannot share a vertex")
            case _ if obstacle == _SHARED and requested not in (BROADCAST, RESCALE):
                raise _RefusedError(_SHARED, f"the result behind {edge.id} is shared by several consumers")
            case _:
                return requested

    def _obstacle(self, graph: StreamGraph, edge: StreamEdge) -> str | None:
        """Return why the ends of an edge cannot share a vertex, as a clause for users; None if they can."""
        if len(graph.out_edges(edge.source_id)) > 1:
            return _SHARED
        if self.is_frozen(edge.source_id):
            return started_already(graph.node(edge.source_id))
        chained = forward_group(graph, edge.source_id) | forward_group(graph, edge.target_id)
        parallelisms = {graph.node(node_id).parallelism for node_id in chained} - {None}
        return None if len(parallelisms) <= 1 else "the user set different numbers of tasks for the two steps"


def forward_group(graph: StreamGraph, node_id: int) -> set[int]:
    """Return the ids of the nodes that FORWARD edges connect to a node, including itself."""
    group, todo = {node_id}, [node_id]
    while todo:
        current = todo.pop()
        neighbours = [e.source_id for e in graph.in_edges(current) if e.is_forward]
        neighbours += [e.target_id for e in graph.out_edges(current) if e.is_forward]
        for neighbour in neighbours:
            if neighbour not in group:
                group.add(neighbour)
                todo.append(neighbour)
    return group
