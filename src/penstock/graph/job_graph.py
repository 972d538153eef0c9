"""The job graph: its vertices, each a tree of chained operators, and the blocking edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import GraphError

if TYPE_CHECKING:
    from penstock.graph.stream_graph import StreamEdge

JobVertexID = str


@dataclass(frozen=True, slots=True)
class JobEdge:
    """An edge between two vertices; the target starts when the source has finished."""

    stream_edge: StreamEdge
    source_vertex_id: JobVertexID
    target_vertex_id: JobVertexID


@dataclass(frozen=True, slots=True)
class JobVertex:
    """Operators that run together in the same tasks.

    `node_ids` are its stream nodes, each after its inputs; the last is the tail, whose rows leave the vertex.
    `inputs` are the edges from other vertices. `parallelism` is the number of tasks that the user set, or None; also
    None if inputs of a union have different numbers. `max_parallelism` is the smallest maximum of its nodes, or None.
    """

    id: JobVertexID
    name: str
    node_ids: tuple[int, ...]
    inputs: tuple[JobEdge, ...]
    parallelism: int | None
    max_parallelism: int | None

    @property
    def tail_id(self) -> int:
        """The id of the node whose rows leave the vertex."""
        return self.node_ids[-1]


class JobGraph:
    """The vertices created so far; vertices are only added."""

    def __init__(self) -> None:
        self._vertices: dict[JobVertexID, JobVertex] = {}

    def __len__(self) -> int:
        return len(self._vertices)

    def __iter__(self) -> Iterator[JobVertex]:
        return iter(tuple(self._vertices.values()))

    def add(self, vertex: JobVertex) -> None:
        """Add a vertex; raise `GraphError` if its id already exists, or an input comes from an unknown vertex."""
        if vertex.id in self._vertices:
            raise GraphError(f"two job vertices have the id {vertex.id}")
        for edge in vertex.inputs:
            self.vertex(edge.source_vertex_id)
        self._vertices[vertex.id] = vertex

    def vertex(self, vertex_id: JobVertexID) -> JobVertex:
        """Return a vertex; raise `GraphError` if no vertex has the id."""
        if vertex_id not in self._vertices:
            raise GraphError(f"the job graph has no vertex {vertex_id}")
        return self._vertices[vertex_id]
