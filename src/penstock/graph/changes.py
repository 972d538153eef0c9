"""Changes of a stream graph: requests, applied changes and refused changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.decisions.log import Choice, Decision
    from penstock.graph.operators import DynamicFilterRef, Operator
    from penstock.graph.partitioner import Partitioner
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode


@dataclass(frozen=True, slots=True)
class StreamEdgeUpdateRequest:
    """A requested change of an edge; fields that are None (or a type number of 0) stay unchanged."""

    edge_id: str
    partitioner: Partitioner | None = None
    type_number: int = 0  # the input of the target: 1 for the left or only input, 2 for the right
    intra_input_correlated: bool | None = None  # False: several tasks may read the rows of a subpartition


@dataclass(frozen=True, slots=True)
class StreamNodeUpdateRequest:
    """A requested change of a node; fields that are None stay unchanged."""

    node_id: int
    parallelism: int | None = None
    max_parallelism: int | None = None
    operator: Operator | None = None
    filters: tuple[DynamicFilterRef, ...] | None = None


UpdateRequest = StreamEdgeUpdateRequest | StreamNodeUpdateRequest


@dataclass(frozen=True, slots=True)
class GraphChange:
    """An atomic change of a graph.

    `nodes` and `edges` have a pair (before, after) for each changed node or edge. `requests` are the requests that led
    to the change; empty for a rollback. `decision` is the decision that caused the change, or None.
    """

    nodes: tuple[tuple[StreamNode, StreamNode], ...]
    edges: tuple[tuple[StreamEdge, StreamEdge], ...]
    requests: tuple[UpdateRequest, ...] = ()
    decision: Decision | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no node and no edge changes."""
        return not self.nodes and not self.edges

    def applied_to(self, graph: StreamGraph) -> StreamGraph:
        """Return a graph with this change."""
        return graph.replace((new for _, new in self.nodes), (new for _, new in self.edges))

    @classmethod
    def between(
        cls, before: StreamGraph, after: StreamGraph, nodes: Iterable[int], edges: Iterable[str]
    ) -> GraphChange:
        """Return the change between two graphs that differ at most in the nodes and edges with these ids."""
        node_pairs = ((before.node(node_id), after.node(node_id)) for node_id in dict.fromkeys(nodes))
        edge_pairs = ((before.edge(edge_id), after.edge(edge_id)) for edge_id in dict.fromkeys(edges))
        return cls(
            tuple((old, new) for old, new in node_pairs if old != new),
            tuple((old, new) for old, new in edge_pairs if old != new),
        )


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that was requested and refused.

    `reason` is for users, as a clause; `detail` has the names of nodes and edges, for authors of strategies. `choice`
    is the choice that the change would have carried out, or None.
    """

    requests: tuple[UpdateRequest, ...]
    reason: str
    choice: Choice | None = None
    detail: str = ""


class GraphListener(Protocol):
    """Listener that is notified of applied and refused changes of a graph; it must neither block nor raise."""

    def on_graph_changed(self, change: GraphChange) -> None:
        """Handle a change."""

    def on_change_refused(self, refused: RefusedChange) -> None:
        """Handle a refused change."""
