"""What strategies see of a stream graph, and the changes they may make to what is still pending."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.errors import GraphError
from penstock.graph.changes import GraphChange, RefusedChange, StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    RESCALE,
    ForwardForConsecutiveHashPartitioner,
    ForwardForUnspecifiedPartitioner,
    Partitioner,
)
from penstock.graph.wording import has_started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph.changes import UpdateRequest
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

log = logging.getLogger("penstock.graph")

_SHARED = "several steps read these rows"


class PendingGraph(Protocol):
    """The owner of a stream graph, as the context needs it."""

    @property
    def graph(self) -> StreamGraph:
        """The graph as it is now."""

    def is_frozen(self, node_id: int) -> bool:
        """Whether a node belongs to a job vertex already."""

    def commit(self, change: GraphChange) -> None:
        """Change the graph."""

    def refuse(self, refused: RefusedChange) -> None:
        """Note that a change cannot be."""

    def defer(self, node_id: int, until: int) -> bool:
        """Let the vertex of a node wait for another node; False if that cannot be."""

    def release(self, node_id: int, until: int) -> bool:
        """Let the vertex of a node wait for another node no longer; False if it does not."""


class _RefusedError(Exception):
    """A change cannot be: why in words of people, and with the names of nodes and edges."""

    def __init__(self, because: str, detail: str) -> None:
        super().__init__(detail)
        self.because = because


class StreamGraphContext:
    """A read-only view of the stream graph with three ways to change its pending part.

    Parameters
    ----------
    owner
        Who has the graph.
    """

    def __init__(self, owner: PendingGraph) -> None:
        self._owner = owner

    @property
    def stream_graph(self) -> StreamGraph:
        """The graph as it is now."""
        return self._owner.graph

    def is_frozen(self, node_id: int) -> bool:
        """Whether a node has become part of a job vertex, so that it and its input edges stay as they are."""
        return self._owner.is_frozen(node_id)

    def defer(self, node_id: int, until: int) -> bool:
        """Let the vertex of a pending node wait until another node has finished.

        Returns
        -------
        bool
            False, and nothing is changed, if the node is frozen or the other node waits for it.
        """
        return self._owner.defer(node_id, until)

    def release(self, node_id: int, until: int) -> bool:
        """Let the vertex of a pending node wait for another node no longer; False if it does not wait for it."""
        return self._owner.release(node_id, until)

    def modify_stream_edge(self, requests: Sequence[StreamEdgeUpdateRequest]) -> bool:
        """Change edges: all of the batch, or none.

        A request is refused if the edge's target is frozen, or if it asks for another partitioner while the edge
        is FORWARD already, the source feeds other consumers too (which may read the same result broadcast or rescaled,
        nothing else), or FORWARD would join nodes of different parallelism.

        Returns
        -------
        bool
            Whether that changed anything; the reason of a refusal goes to the log ``penstock.graph``.
        """
        return self._carry_out(self._planned(requests))

    def modify_stream_node(self, requests: Sequence[StreamNodeUpdateRequest]) -> bool:
        """Change nodes: all of the batch, or none. Frozen nodes refuse.

        Returns
        -------
        bool
            Whether that changed anything.

        Raises
        ------
        GraphError
            If a request gives a node an operator of another kind.
        """
        return self._carry_out(self._planned(requests))

    def _carry_out(self, planned: GraphChange | RefusedChange) -> bool:
        """Commit a change, or note its refusal; return whether anything was changed."""
        if isinstance(planned, RefusedChange):
            log.info("change refused, as %s: %s", planned.because, planned.detail)
            self._owner.refuse(planned)
            return False
        if planned.is_empty:
            return False
        self._owner.commit(planned)
        return True

    def _planned(self, requests: Sequence[UpdateRequest]) -> GraphChange | RefusedChange:
        """Return what a batch would change, or why it is refused; nothing is changed yet."""
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
            return RefusedChange(tuple(requests), refusal.because, detail=str(refusal))
        return replace(GraphChange.between(before, graph, nodes, edges), asked=tuple(requests))

    def _changed_node(self, graph: StreamGraph, request: StreamNodeUpdateRequest) -> StreamNode:
        node = graph.node(request.node_id)
        if self.is_frozen(node.id):
            raise _RefusedError(has_started(node), f"{node.name} is frozen")
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
            raise _RefusedError(has_started(graph.node(edge.target_id)), f"the target of {edge.id} is frozen")
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

    def _changed_partitioner(self, graph: StreamGraph, edge: StreamEdge, wanted: Partitioner) -> Partitioner:
        if edge.partitioner == FORWARD:
            raise _RefusedError("the rows stay in their task already", f"{edge.id} is FORWARD already")
        obstacle = self._obstacle(graph, edge)
        match wanted:
            case ForwardForUnspecifiedPartitioner():
                return FORWARD if obstacle is None else RESCALE
            case ForwardForConsecutiveHashPartitioner():
                return FORWARD if obstacle is None else wanted.hash
            case _ if wanted == FORWARD and obstacle is not None:
                raise _RefusedError(obstacle, f"the ends of {edge.id} cannot share a vertex")
            case _ if obstacle == _SHARED and wanted not in (BROADCAST, RESCALE):
                raise _RefusedError(_SHARED, f"the result behind {edge.id} is shared by several consumers")
            case _:
                return wanted

    def _obstacle(self, graph: StreamGraph, edge: StreamEdge) -> str | None:
        """Return why the ends of an edge cannot share a vertex, in words of people; None if they can."""
        if len(graph.out_edges(edge.source_id)) > 1:
            return _SHARED
        if self.is_frozen(edge.source_id):
            return has_started(graph.node(edge.source_id))
        return None if can_merge(graph, edge) else "both steps were given numbers of tasks, which differ"


def can_merge(graph: StreamGraph, edge: StreamEdge) -> bool:
    """Whether the FORWARD groups at both ends of an edge may have one parallelism."""
    asked = {
        node.parallelism
        for end in (edge.source_id, edge.target_id)
        for node in map(graph.node, forward_group(graph, end))
        if node.parallelism is not None
    }
    return len(asked) <= 1


def forward_group(graph: StreamGraph, node_id: int) -> set[int]:
    """Return the ids of all nodes joined to one by FORWARD edges, itself among them."""
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
