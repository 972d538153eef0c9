"""The view of the stream graph through which strategies change its pending part: nodes without a vertex."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import GraphError
from penstock.graph.changes import GraphChange, RefusedChange, StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.labels import started_reason
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    RESCALE,
    ForwardForConsecutiveHashPartitioner,
    ForwardForUnspecifiedPartitioner,
    Partitioner,
)
from penstock.graph.stream_graph import reachable

if TYPE_CHECKING:
    from penstock.graph.changes import UpdateRequest
    from penstock.graph.manager import AdaptiveGraphManager
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

log = logging.getLogger("penstock.graph")

_SHARED_ROWS = "several steps read these rows"


class _RefusedError(Exception):
    """A change is refused; `reason` is a clause for users, and the message (`detail`) names nodes and edges."""

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
        """Make the vertex of a pending node wait until the node `until` has finished.

        Return False, and change nothing, if the node is frozen, or if `until` has finished or waits for the node.
        """
        return self._owner.defer(node_id, until)

    def release(self, node_id: int, until: int) -> bool:
        """End the wait of a pending node's vertex for the node `until`; return False if there is no such wait."""
        return self._owner.release(node_id, until)

    def modify_stream_edge(self, requests: Sequence[StreamEdgeUpdateRequest]) -> bool:
        """Change edges as requested, or none if any request is refused; return whether anything changed.

        A request is refused if the edge's target is frozen. A new partitioner is also refused if the edge is FORWARD.
        FORWARD is refused if the source is frozen or has several consumers, or if the user set different numbers of
        tasks for the two vertices. If the source has several consumers, only BROADCAST, RESCALE and the ``ForwardFor``
        partitioners (as RESCALE or HASH) are allowed. The logger ``penstock.graph`` logs the reason for a refusal.
        """
        return self._apply_or_refuse(self._plan(requests))

    def modify_stream_node(self, requests: Sequence[StreamNodeUpdateRequest]) -> bool:
        """Change nodes as requested, or none if any request is refused; return whether anything changed.

        Changes of frozen nodes are refused. Raise `GraphError` if a request gives a node an operator of another kind.
        """
        return self._apply_or_refuse(self._plan(requests))

    def _apply_or_refuse(self, change_or_refusal: GraphChange | RefusedChange) -> bool:
        """Apply a planned change, or record its refusal; return whether anything changed."""
        if isinstance(change_or_refusal, RefusedChange):
            log.info("change refused, as %s: %s", change_or_refusal.reason, change_or_refusal.detail)
            self._owner.refuse(change_or_refusal)
            return False
        if change_or_refusal.is_empty:
            return False
        self._owner.commit(change_or_refusal)
        return True

    def _plan(self, requests: Sequence[UpdateRequest]) -> GraphChange | RefusedChange:
        """Return the change that a batch of requests describes, or its refusal; the graph is not modified."""
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
            raise _RefusedError(started_reason(node), f"{node.name} is frozen")
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
            raise _RefusedError(started_reason(graph.node(edge.target_id)), f"the target of {edge.id} is frozen")
        partitioner = edge.partitioner
        if request.partitioner is not None and request.partitioner != edge.partitioner:
            partitioner = self._changed_partitioner(graph, edge, request.partitioner)
        correlated = request.intra_input_correlated
        return replace(
            edge,
            partitioner=partitioner,
            type_number=request.type_number or edge.type_number,
            intra_input_correlated=edge.intra_input_correlated if correlated is None else correlated,
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
            case _ if obstacle == _SHARED_ROWS and requested not in (BROADCAST, RESCALE):
                raise _RefusedError(_SHARED_ROWS, f"the result that {edge.id} reads is shared by several consumers")
            case _:
                return requested

    def _obstacle(self, graph: StreamGraph, edge: StreamEdge) -> str | None:
        """Return why the ends of an edge cannot share a vertex, as a clause for users; None if they can."""
        if len(graph.out_edges(edge.source_id)) > 1:
            return _SHARED_ROWS
        if self.is_frozen(edge.source_id):
            return started_reason(graph.node(edge.source_id))
        chained = chained_nodes(graph, edge.source_id) | chained_nodes(graph, edge.target_id)
        parallelisms = {graph.node(node_id).parallelism for node_id in chained} - {None}
        return None if len(parallelisms) <= 1 else "the user set different numbers of tasks for the two steps"


def chained_nodes(graph: StreamGraph, node_id: int) -> set[int]:
    """Return the ids of all nodes that edges with `StreamEdge.is_forward` connect to a node, including its own."""

    def neighbours(current: int) -> list[int]:
        sources = [e.source_id for e in graph.in_edges(current) if e.is_forward]
        return sources + [e.target_id for e in graph.out_edges(current) if e.is_forward]

    return set(reachable(node_id, neighbours))
