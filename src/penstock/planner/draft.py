"""The draft of a job graph: built by the translation, and completed by the passes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.decisions import DecisionKind
from penstock.graph import OperatorKind, StreamEdge, StreamNode
from penstock.graph.partitioner import FORWARD, BroadcastPartitioner, GlobalPartitioner, Partitioner
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from penstock.connectors.base import Sink, SinkStage
    from penstock.decisions import Explanation
    from penstock.graph import Operator, StreamGraph
    from penstock.location import SourceLine
    from penstock.plan_hints import Stage
    from penstock.planner.plan import EdgePlan, NodePlan, SourcePlan
    from penstock.spark.joins import JoinFacts
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class Note:
    """A decision of the planner about a node or a name; other fields as in `Choice`.

    `explanation` gets the graph with all names and sizes, and the names of its columns.
    """

    about: int | str
    chosen: str
    reason: str
    kind: DecisionKind = DecisionKind.SHARING
    figures: Mapping[str, int] = field(default_factory=dict)
    explanation: Callable[[StreamGraph, Mapping[str, str]], Explanation] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TranslatedNode:
    """The node that returns the rows of a translated part of a plan, and their distribution."""

    node_id: int
    distribution: Distribution = UNKNOWN_DISTRIBUTION


@dataclass(frozen=True, slots=True)
class Draft:
    """A translated job, which each pass of the planner refines.

    Parameters
    ----------
    nodes, edges, node_plans, edge_plans, sources, sinks, stages, exchanges, notes
        As in `JobPlan`.
    groups
        The exchange group of each edge that is not FORWARD, by edge id.
    joins
        The operator and facts of each equi-join, by node id.
    node_of
        The node that returns the rows of an operator.
    same_leaf
        The leaf of the first occurrence of a repeated part, which is in the graph, by the leaves of all occurrences.
    """

    nodes: Mapping[int, StreamNode]
    edges: tuple[StreamEdge, ...]
    node_plans: Mapping[int, NodePlan]
    edge_plans: Mapping[str, EdgePlan]
    sources: Mapping[int, SourcePlan]
    sinks: Mapping[int, Sink]
    stages: Mapping[int, tuple[int, SinkStage]]
    exchanges: Mapping[int, Stage]
    groups: Mapping[str, int]
    notes: tuple[Note, ...]
    joins: Mapping[int, tuple[LogicalNode, JoinFacts]]
    node_of: Mapping[LogicalNode, int]
    same_leaf: Mapping[LogicalNode, LogicalNode]

    def out_edges(self, node_id: int) -> list[StreamEdge]:
        """Return the edges that leave a node."""
        return [edge for edge in self.edges if edge.source_id == node_id]

    def chained(self, node_id: int) -> set[int]:
        """Return a node and the upstream nodes that would share its vertex."""
        return chained(self.edges, node_id)

    def with_operators(self, operators: Mapping[int, Operator]) -> Draft:
        """Return the draft with some operators replaced, by node id."""
        changed = {node_id: replace(self.nodes[node_id], operator=operator) for node_id, operator in operators.items()}
        return replace(self, nodes={**self.nodes, **changed})


def chained(edges: Iterable[StreamEdge], node_id: int) -> set[int]:
    """Return a node and the upstream nodes that would share its vertex."""
    members, todo = {node_id}, [node_id]
    while todo:
        current = todo.pop()
        for edge in edges:
            if edge.target_id == current and edge.is_forward and edge.source_id not in members:
                members.add(edge.source_id)
                todo.append(edge.source_id)
    return members


@dataclass
class DraftBuilder:
    """Builder that collects nodes and edges while plans are translated."""

    nodes: dict[int, StreamNode] = field(default_factory=dict)
    edges: list[StreamEdge] = field(default_factory=list)
    node_plans: dict[int, NodePlan] = field(default_factory=dict)
    edge_plans: dict[str, EdgePlan] = field(default_factory=dict)
    sources: dict[int, SourcePlan] = field(default_factory=dict)
    sinks: dict[int, Sink] = field(default_factory=dict)
    stages: dict[int, tuple[int, SinkStage]] = field(default_factory=dict)
    exchanges: dict[int, Stage] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    joins: dict[int, tuple[LogicalNode, JoinFacts]] = field(default_factory=dict)
    node_of: dict[LogicalNode, int] = field(default_factory=dict)
    same_leaf: dict[LogicalNode, LogicalNode] = field(default_factory=dict)
    _group_count: int = 0

    @classmethod
    def of(cls, draft: Draft) -> DraftBuilder:
        """Return a builder with the contents of a draft."""
        return cls(
            dict(draft.nodes),
            list(draft.edges),
            dict(draft.node_plans),
            dict(draft.edge_plans),
            dict(draft.sources),
            dict(draft.sinks),
            dict(draft.stages),
            dict(draft.exchanges),
            dict(draft.groups),
            list(draft.notes),
            dict(draft.joins),
            dict(draft.node_of),
            dict(draft.same_leaf),
            max(draft.groups.values(), default=0),
        )

    def draft(self) -> Draft:
        """Return the draft with the collected nodes and edges."""
        return Draft(
            MappingProxyType(dict(self.nodes)),
            tuple(self.edges),
            MappingProxyType(dict(self.node_plans)),
            MappingProxyType(dict(self.edge_plans)),
            MappingProxyType(dict(self.sources)),
            MappingProxyType(dict(self.sinks)),
            MappingProxyType(dict(self.stages)),
            MappingProxyType(dict(self.exchanges)),
            MappingProxyType(dict(self.groups)),
            tuple(self.notes),
            MappingProxyType(dict(self.joins)),
            MappingProxyType(dict(self.node_of)),
            MappingProxyType(dict(self.same_leaf)),
        )

    def node(
        self,
        operator: Operator,
        name: str,
        plan: NodePlan,
        *,
        description: str = "",
        parallelism: int | None = None,
        location: SourceLine | None = None,
    ) -> int:
        """Add a node and return its id."""
        node_id = len(self.nodes) + 1
        self.nodes[node_id] = StreamNode(node_id, operator, name, description or name, parallelism, location=location)
        self.node_plans[node_id] = plan
        return node_id

    def edge(
        self,
        source: int,
        target: int,
        partitioner: Partitioner,
        plan: EdgePlan,
        *,
        number: int = 1,
        group: int | None = None,
    ) -> str:
        """Add an edge and return its id. An edge that is not FORWARD belongs to an exchange group."""
        edge_id = f"{source}_{target}_{number}"
        while edge_id in self.edge_plans:
            edge_id += "'"
        self.edges.append(StreamEdge(edge_id, source, target, partitioner, number))
        self.edge_plans[edge_id] = plan
        if partitioner != FORWARD:  # even if it is chained, because it may become an exchange
            self.groups[edge_id] = self.new_group() if group is None else group
        return edge_id

    def out_edges(self, node_id: int) -> list[StreamEdge]:
        """Return the edges that leave a node."""
        return [edge for edge in self.edges if edge.source_id == node_id]

    def new_group(self) -> int:
        """Return the number of a new exchange group."""
        self._group_count += 1
        return self._group_count

    def merge_groups(self, target: int, source: int) -> None:
        """Merge an exchange group into another."""
        for edge_id, group in self.groups.items():
            if group == source:
                self.groups[edge_id] = target

    def chained(self, node_id: int) -> set[int]:
        """Return a node and the upstream nodes that would share its vertex."""
        return chained(self.edges, node_id)

    def accepts_parallelism(self, node_id: int, parallelism: int) -> bool:
        """Whether the vertex that ends with a node can run with a number of tasks.

        It can if its input comes from a single exchange group, or from a single scan of files.
        """
        chain = self.chained(node_id)
        return all(self.nodes[n].parallelism in {None, parallelism} for n in chain) and self._has_free_parallelism(
            chain
        )

    def accepts_max_parallelism(self, node_id: int, maximum: int) -> bool:
        """Whether the vertex that ends with a node can limit its number of tasks, see `accepts_parallelism`."""
        chain = self.chained(node_id)
        return all((self.nodes[n].parallelism or 0) <= maximum for n in chain) and self._has_free_parallelism(chain)

    def _has_free_parallelism(self, chain: Collection[int]) -> bool:
        """Whether Penstock can choose the number of tasks of chained nodes freely."""
        if any(self.nodes[n].kind in {OperatorKind.UNION, OperatorKind.OPAQUE} for n in chain):
            return False
        blocking = [e for e in self.edges if e.target_id in chain and not e.is_forward]
        if any(isinstance(e.partitioner, GlobalPartitioner) for e in blocking):
            return False
        groups = {self.groups[e.id] for e in blocking if not isinstance(e.partitioner, BroadcastPartitioner)}
        scans = [self.sources[n] for n in chain if n in self.sources]
        if scans:
            return len(scans) == 1 and scans[0].scan.allows_any_parallelism and not groups
        return len(groups) == 1

    def update_node(self, node_id: int, **changes: Any) -> None:
        """Change fields of a node."""
        self.nodes[node_id] = replace(self.nodes[node_id], **changes)
