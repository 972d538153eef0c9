"""Creates job vertices from the stream graph step by step, when the vertices before them finish (FLIP-469)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.errors import GraphError
from penstock.graph.context import StreamGraphContext, chained_nodes
from penstock.graph.job_graph import JobEdge, JobGraph, JobVertex, JobVertexID
from penstock.graph.operators import CONCATENATING_KINDS
from penstock.graph.stream_graph import reachable

if TYPE_CHECKING:
    from penstock.graph.changes import GraphChange, GraphListener, RefusedChange
    from penstock.graph.stream_graph import StreamGraph


class AdaptiveGraphManager:
    """Creator of the job graph: chained nodes (`StreamEdge.is_forward`) become a vertex when its inputs have finished.

    Chains without exchanged inputs (sources and the nodes chained to them) become vertices at once, unless they are
    deferred. A node that is part of a vertex is frozen, with its input edges. `initialize` is called with the manager
    before the first vertices are created; the listener is notified of all changes and refused changes.

    `graph` is the current stream graph, and `job_graph` has the vertices created so far. Pending nodes and edges are
    read and changed through `stream_graph_context`.
    """

    def __init__(
        self,
        stream_graph: StreamGraph,
        initialize: Callable[[AdaptiveGraphManager], None] | None = None,
        listener: GraphListener | None = None,
    ) -> None:
        self.graph = stream_graph
        self.job_graph = JobGraph()
        self._listener = listener
        self._vertex_of: dict[int, JobVertexID] = {}
        self._finished_nodes: set[int] = set()
        self._finished_vertices: set[JobVertexID] = set()
        self._deferred: dict[int, set[int]] = {}
        self._candidates: list[int] = []
        self.stream_graph_context = StreamGraphContext(self)
        if initialize is not None:
            initialize(self)
        self._create_ready_vertices(node.id for node in self.graph)

    @property
    def pending_operators(self) -> int:
        """The number of stream nodes that are not part of a vertex yet."""
        return len(self.graph) - len(self._vertex_of)

    def finish(self, vertex_id: JobVertexID) -> JobVertex:
        """Mark a vertex as finished and return it; raise `GraphError` if it does not exist or has already finished."""
        vertex = self.job_graph.vertex(vertex_id)
        if vertex_id in self._finished_vertices:
            raise GraphError(f"vertex {vertex_id} has finished twice")
        self._finished_vertices.add(vertex_id)
        self._finished_nodes.update(vertex.node_ids)
        self._candidates += [edge.target_id for edge in self.graph.out_edges(vertex.tail_id)]
        for node_id in list(self._deferred):
            self._deferred[node_id] -= self._finished_nodes
            if not self._deferred[node_id]:
                del self._deferred[node_id]
                self._candidates.append(node_id)
        return vertex

    def grow(self) -> list[JobVertex]:
        """Create the vertices that have become ready since the last call, and return them.

        If all vertices have finished and no vertex is ready, all deferrals end; otherwise, the job would never finish.
        """
        candidates, self._candidates = self._candidates, []
        vertices = self._create_ready_vertices(candidates)
        if not vertices and self._deferred and len(self._finished_vertices) == len(self.job_graph):
            self._deferred.clear()
            vertices = self._create_ready_vertices(node.id for node in self.graph)
        return vertices

    def is_frozen(self, node_id: int) -> bool:
        """Whether a node is part of a job vertex."""
        return node_id in self._vertex_of

    def commit(self, change: GraphChange) -> None:
        """Apply a change; `grow` then checks whether vertices at the ends of changed edges are ready."""
        self.graph = change.applied_to(self.graph)
        self._candidates += [end for _, edge in change.edges for end in (edge.source_id, edge.target_id)]
        if self._listener is not None:
            self._listener.on_graph_changed(change)

    def refuse(self, refused: RefusedChange) -> None:
        """Notify the listener of a refused change."""
        if self._listener is not None:
            self._listener.on_change_refused(refused)

    def defer(self, node_id: int, until: int) -> bool:
        """Make the vertex of a node wait for the node `until`; return False if that is not possible."""
        if self.is_frozen(node_id) or until in self._finished_nodes or self._waits_for(until, node_id):
            return False
        self._deferred.setdefault(node_id, set()).add(until)
        return True

    @property
    def awaited(self) -> set[int]:
        """The ids of the nodes that deferred nodes wait for."""
        return set().union(*self._deferred.values())

    def release(self, node_id: int, until: int) -> bool:
        """End the wait of a node's vertex for the node `until`; return False if there is no such wait."""
        awaited = self._deferred.get(node_id, set())
        if until not in awaited:
            return False
        awaited.remove(until)
        if not awaited:
            del self._deferred[node_id]
            self._candidates.append(node_id)
        return True

    def _waits_for(self, node_id: int, other: int) -> bool:
        """Whether a node can only finish after another node, because of edges, chains or deferrals."""
        waiters: dict[int, list[int]] = {}
        for deferred, awaited in self._deferred.items():
            for awaited_id in awaited:
                waiters.setdefault(awaited_id, []).append(deferred)

        def followers(current: int) -> list[int]:
            following = [edge.target_id for edge in self.graph.out_edges(current)]
            following += [edge.source_id for edge in self.graph.in_edges(current) if edge.is_forward]
            return following + waiters.get(current, [])

        return node_id in reachable(other, followers)

    def _create_ready_vertices(self, candidates: Iterable[int]) -> list[JobVertex]:
        vertices = []
        seen: set[int] = set()
        for node_id in candidates:
            if node_id in seen or self.is_frozen(node_id):
                continue
            chain = chained_nodes(self.graph, node_id)
            seen |= chain
            if not self._deferred.keys().isdisjoint(chain):
                continue
            inputs = [e for n in chain for e in self.graph.in_edges(n) if e.source_id not in chain]
            if all(edge.source_id in self._finished_nodes for edge in inputs):
                vertices.append(self._create_vertex(chain))
        return vertices

    def _create_vertex(self, chain: set[int]) -> JobVertex:
        ordered = self._chain_order(chain)
        nodes = [self.graph.node(node_id) for node_id in ordered]
        vertex_id = f"v{len(self.job_graph) + 1}"
        inputs = tuple(
            JobEdge(edge, self._vertex_of[edge.source_id], vertex_id)
            for node_id in ordered
            for edge in self.graph.in_edges(node_id)
            if edge.source_id not in chain
        )
        parallelisms = {node.parallelism for node in nodes if node.parallelism is not None}
        if len(parallelisms) > 1 and not any(node.kind in CONCATENATING_KINDS for node in nodes):
            raise GraphError(f"chained operators have different parallelisms {sorted(parallelisms)}")
        maxima = [node.max_parallelism for node in nodes if node.max_parallelism is not None]
        vertex = JobVertex(
            id=vertex_id,
            name=" -> ".join(node.name for node in nodes),
            node_ids=tuple(ordered),
            inputs=inputs,
            parallelism=parallelisms.pop() if len(parallelisms) == 1 else None,
            max_parallelism=min(maxima, default=None),
        )
        self.job_graph.add(vertex)
        self._vertex_of.update(dict.fromkeys(ordered, vertex_id))
        return vertex

    def _chain_order(self, chain: set[int]) -> list[int]:
        """Return the nodes of a chain in post-order from the tail: inputs before their consumers."""
        (tail,) = (n for n in chain if not any(e.is_forward for e in self.graph.out_edges(n)))
        order: list[int] = []
        todo = [(tail, False)]
        while todo:
            node_id, expanded = todo.pop()
            if expanded:
                order.append(node_id)
                continue
            todo.append((node_id, True))
            todo += [(e.source_id, False) for e in reversed(self.graph.in_edges(node_id)) if e.source_id in chain]
        return order
