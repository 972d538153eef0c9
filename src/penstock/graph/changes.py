"""Changes of a stream graph, as values: what was asked for, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.decisions import Choice, Decision
    from penstock.graph.filter_paths import DynamicFilterRef
    from penstock.graph.operators import Operator
    from penstock.graph.partitioner import Partitioner
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode


@dataclass(frozen=True, slots=True)
class StreamEdgeUpdateRequest:
    """A change of one edge; what is None (or type number 0) stays as it is."""

    edge_id: str
    partitioner: Partitioner | None = None
    type_number: int = 0
    intra_input_correlated: bool | None = None


@dataclass(frozen=True, slots=True)
class StreamNodeUpdateRequest:
    """A change of one node; what is None stays as it is."""

    node_id: int
    parallelism: int | None = None
    max_parallelism: int | None = None
    operator: Operator | None = None
    filters: tuple[DynamicFilterRef, ...] | None = None


UpdateRequest = StreamEdgeUpdateRequest | StreamNodeUpdateRequest


@dataclass(frozen=True, slots=True)
class GraphChange:
    """One change of a graph, all of it at once.

    Parameters
    ----------
    nodes, edges
        What became other: each as it was, and as it is now.
    asked
        What was asked for; empty where a change was undone.
    decision
        The decision that changed it, None if nobody gave one.
    """

    nodes: tuple[tuple[StreamNode, StreamNode], ...]
    edges: tuple[tuple[StreamEdge, StreamEdge], ...]
    asked: tuple[UpdateRequest, ...] = ()
    decision: Decision | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all is as it was."""
        return not self.nodes and not self.edges

    def applied_to(self, graph: StreamGraph) -> StreamGraph:
        """Return the changed graph."""
        return graph.replace((new for _, new in self.nodes), (new for _, new in self.edges))

    @classmethod
    def between(
        cls, before: StreamGraph, after: StreamGraph, nodes: Iterable[int], edges: Iterable[str]
    ) -> GraphChange:
        """Return the change from one graph to another, of which only some nodes and edges may differ."""
        node_pairs = ((before.node(node_id), after.node(node_id)) for node_id in dict.fromkeys(nodes))
        edge_pairs = ((before.edge(edge_id), after.edge(edge_id)) for edge_id in dict.fromkeys(edges))
        return cls(
            tuple((old, new) for old, new in node_pairs if old != new),
            tuple((old, new) for old, new in edge_pairs if old != new),
        )


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that was asked for, and cannot be.

    Parameters
    ----------
    asked
        What was asked for.
    because
        Why not, half a sentence in words of people.
    choice
        What would have been decided by it, None if nobody gave that.
    detail
        Why not, with the names of nodes and edges: for who writes a strategy.
    """

    asked: tuple[UpdateRequest, ...]
    because: str
    choice: Choice | None = None
    detail: str = ""


class GraphListener(Protocol):
    """Hears of changes of a graph when they are made; it must neither wait nor raise."""

    def on_graph_changed(self, change: GraphChange) -> None:
        """Take a change."""

    def on_change_refused(self, refused: RefusedChange) -> None:
        """Take a change that was refused."""
