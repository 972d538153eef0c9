"""The stream graph of a job: operators and the edges between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import GraphError

if TYPE_CHECKING:
    from penstock.base.location import UserLine
    from penstock.graph.operators import DynamicFilterRef, Operator, OperatorKind
    from penstock.graph.partitioner import Partitioner


@dataclass(frozen=True, slots=True)
class StreamNode:
    """An operator in the stream graph.

    `description` is Spark's text of the operator on a single line. `parallelism` is the number of tasks that the user
    set, and `max_parallelism` the maximum that the user or Penstock set; None if not set. `location` is the user's line
    that created the operator, or None. `filters` are the dynamic filters to apply after it.
    """

    id: int
    operator: Operator
    name: str
    description: str = ""
    parallelism: int | None = None
    max_parallelism: int | None = None
    location: UserLine | None = field(default=None, compare=False)
    filters: tuple[DynamicFilterRef, ...] = ()

    def __post_init__(self) -> None:
        for name, number in (("parallelism", self.parallelism), ("max parallelism", self.max_parallelism)):
            if number is not None and number < 1:
                raise GraphError(f"invalid {name} {number} of {self.name}", hint="give a whole number of at least 1")

    @property
    def kind(self) -> OperatorKind:
        """The kind of its operator."""
        return self.operator.kind


@dataclass(frozen=True, slots=True)
class StreamEdge:
    """The connection from an operator to the next.

    `type_number` is the number of the target's input: 1 for the left or only input, 2 for the right input.
    `intra_input_correlated` says whether the rows of a subpartition must stay in the same task.
    """

    id: str
    source_id: int
    target_id: int
    partitioner: Partitioner
    type_number: int = 1
    intra_input_correlated: bool = True

    def __post_init__(self) -> None:
        if self.source_id == self.target_id:
            raise GraphError(f"edge {self.id} leads from node {self.source_id} to itself")
        if self.type_number < 1:
            raise GraphError(f"edge {self.id} has type number {self.type_number}", hint="inputs are numbered from 1")

    @property
    def is_forward(self) -> bool:
        """Whether both ends run in the same vertex."""
        return self.partitioner.is_chained

    @property
    def exchange(self) -> str:
        """How rows are transferred: ``PIPELINED`` within a vertex, or through a ``BLOCKING`` shuffle."""
        return "PIPELINED" if self.is_forward else "BLOCKING"


class StreamGraph:
    """The nodes and edges of a job, immutable; `StreamGraphContext` changes the graph of a running job.

    Raise `GraphError` if an id is used twice, an end of an edge is missing, there is a cycle, or a node with several
    consumers has a FORWARD edge (its result must be materialized to be read more than once).
    """

    def __init__(self, nodes: Iterable[StreamNode], edges: Iterable[StreamEdge], name: str = "") -> None:
        self.name = name
        self._nodes: dict[int, StreamNode] = {}
        self._edges: dict[str, StreamEdge] = {}
        self._in: dict[int, list[str]] = {}
        self._out: dict[int, list[str]] = {}
        for node in nodes:
            if node.id in self._nodes:
                raise GraphError(f"two nodes have the id {node.id}")
            self._nodes[node.id] = node
            self._in[node.id], self._out[node.id] = [], []
        for edge in edges:
            self._add_edge(edge)
        self._order = self._sorted()

    def _add_edge(self, edge: StreamEdge) -> None:
        if edge.id in self._edges:
            raise GraphError(f"two edges have the id {edge.id}")
        for end in (edge.source_id, edge.target_id):
            if end not in self._nodes:
                raise GraphError(f"edge {edge.id} refers to node {end}, which is not in the graph")
        self._edges[edge.id] = edge
        self._in[edge.target_id].append(edge.id)
        self._out[edge.source_id].append(edge.id)

    def _sorted(self) -> tuple[int, ...]:
        """Return the ids of all nodes, each after its inputs."""
        unsorted_inputs = {node_id: len(edges) for node_id, edges in self._in.items()}
        ready = deque(node_id for node_id, count in unsorted_inputs.items() if count == 0)
        order: list[int] = []
        while ready:
            node_id = ready.popleft()
            order.append(node_id)
            outgoing = self.out_edges(node_id)
            if len(outgoing) > 1 and any(edge.is_forward for edge in outgoing):
                raise GraphError(f"node {node_id} has several consumers and a FORWARD edge")
            for edge in outgoing:
                unsorted_inputs[edge.target_id] -= 1
                if unsorted_inputs[edge.target_id] == 0:
                    ready.append(edge.target_id)
        if len(order) < len(self._nodes):
            raise GraphError(f"the graph has a cycle through nodes {sorted(set(self._nodes) - set(order))}")
        return tuple(order)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[StreamNode]:
        """Iterate over the nodes, each after its inputs."""
        return (self._nodes[node_id] for node_id in self._order)

    @property
    def edges(self) -> tuple[StreamEdge, ...]:
        """All edges."""
        return tuple(self._edges.values())

    def node(self, node_id: int) -> StreamNode:
        """Return a node; raise `GraphError` if no node has the id."""
        if node_id not in self._nodes:
            raise GraphError(f"the graph has no node {node_id}")
        return self._nodes[node_id]

    def edge(self, edge_id: str) -> StreamEdge:
        """Return an edge; raise `GraphError` if no edge has the id."""
        if edge_id not in self._edges:
            raise GraphError(f"the graph has no edge {edge_id}")
        return self._edges[edge_id]

    def in_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Return the edges that lead to a node, in the order of its inputs."""
        return tuple(self._edges[edge_id] for edge_id in self._in[node_id])

    def out_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Return the edges that leave a node."""
        return tuple(self._edges[edge_id] for edge_id in self._out[node_id])

    def replace(self, nodes: Iterable[StreamNode] = (), edges: Iterable[StreamEdge] = ()) -> StreamGraph:
        """Return a copy in which `nodes` and `edges` replace those with the same ids."""
        new_nodes = {**self._nodes, **{node.id: node for node in nodes}}
        new_edges = {**self._edges, **{edge.id: edge for edge in edges}}
        return StreamGraph(new_nodes.values(), new_edges.values(), self.name)


def reachable(start: int, neighbours: Callable[[int], Iterable[int]]) -> Iterator[int]:
    """Yield a node and all nodes that `neighbours` leads to, each once, depth-first from the last neighbour."""
    seen, todo = {start}, [start]
    while todo:
        current = todo.pop()
        yield current
        for neighbour in neighbours(current):
            if neighbour not in seen:
                seen.add(neighbour)
                todo.append(neighbour)
