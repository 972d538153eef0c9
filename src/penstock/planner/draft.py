"""The draft of a job graph: built by the translation, completed by the passes, and converted to the job plan."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.decisions.log import Choice, DecisionKind, Explanation, NameRef, NodeRef
from penstock.graph import Operator, OperatorKind, StreamEdge, StreamGraph, StreamNode
from penstock.graph.context import forward_group
from penstock.graph.labels import column_names
from penstock.graph.partitioner import (
    FORWARD,
    BroadcastPartitioner,
    GlobalPartitioner,
    Partitioner,
    PulledRebalancePartitioner,
)
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution
from penstock.planner.plan import EdgePlan, JobPlan, NodePlan, PlanParts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.spark.plans.joins import JoinFacts
    from penstock.spark.plans.nodes import LogicalNode


@dataclass(frozen=True, slots=True)
class Note:
    """A decision of the planner, as in `Choice`; `explanation` gets the final graph, and the names of its columns."""

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


@dataclass(frozen=True, kw_only=True)
class Draft(PlanParts):
    """The draft of a job, which the translation builds and each pass of the planner refines.

    `joins` has the operator and facts of each equi-join, by node id. `node_of` is the node that returns the rows of an
    operator. `same_leaf` is the leaf of the first occurrence of a repeated part, which is in the graph, by the leaves
    of all occurrences.
    """

    stream_nodes: dict[int, StreamNode] = field(default_factory=dict)
    stream_edges: list[StreamEdge] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    joins: dict[int, tuple[LogicalNode, JoinFacts]] = field(default_factory=dict)
    node_of: dict[LogicalNode, int] = field(default_factory=dict)
    same_leaf: dict[LogicalNode, LogicalNode] = field(default_factory=dict)
    _group_numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def node(self, operator: Operator, name: str, plan: NodePlan, *, description: str = "", **settings: Any) -> int:
        """Add a node with settings such as its parallelism, and return its id."""
        node_id = len(self.stream_nodes) + 1
        self.stream_nodes[node_id] = StreamNode(node_id, operator, name, description or name, **settings)
        self.nodes[node_id] = plan
        return node_id

    def edge(
        self, source: int, target: int, partitioner: Partitioner, plan: EdgePlan, *, number: int = 1, group: int = 0
    ) -> str:
        """Add an edge and return its id. Any but a FORWARD edge has an exchange group, by default a new one."""
        edge_id = f"{source}_{target}_{number}"
        while edge_id in self.edges:
            edge_id += "'"
        self.stream_edges.append(StreamEdge(edge_id, source, target, partitioner, number))
        self.edges[edge_id] = plan
        if partitioner != FORWARD:  # even if it is chained, because it may become an exchange
            self.groups[edge_id] = group or self.new_group()
        return edge_id

    def out_edges(self, node_id: int) -> list[StreamEdge]:
        """Return the edges that leave a node."""
        return [edge for edge in self.stream_edges if edge.source_id == node_id]

    def new_group(self) -> int:
        """Return the number of a new exchange group."""
        return next(self._group_numbers)

    def merge_groups(self, target: int, source: int) -> None:
        """Merge an exchange group into another."""
        for edge_id, group in self.groups.items():
            if group == source:
                self.groups[edge_id] = target

    def chained(self, node_id: int) -> set[int]:
        """Return a node and the upstream nodes that would share its vertex."""
        members, todo = {node_id}, [node_id]
        while todo:
            current = todo.pop()
            for edge in self.stream_edges:
                if edge.target_id == current and edge.is_forward and edge.source_id not in members:
                    members.add(edge.source_id)
                    todo.append(edge.source_id)
        return members

    def accepts_parallelism(self, node_id: int, parallelism: int) -> bool:
        """Whether the vertex that ends with a node can run with a number of tasks.

        It can if its input comes from a single exchange group, or from a single scan of files.
        """
        settings = {self.stream_nodes[n].parallelism for n in self.chained(node_id)}
        return settings <= {None, parallelism} and self._has_free_parallelism(node_id)

    def accepts_max_parallelism(self, node_id: int, maximum: int) -> bool:
        """Whether the vertex that ends with a node can limit its number of tasks, see `accepts_parallelism`."""
        settings = [self.stream_nodes[n].parallelism or 0 for n in self.chained(node_id)]
        return max(settings) <= maximum and self._has_free_parallelism(node_id)

    def _has_free_parallelism(self, node_id: int) -> bool:
        """Whether Penstock can choose the number of tasks of the vertex that ends with a node freely."""
        chain = self.chained(node_id)
        if any(self.stream_nodes[n].kind in {OperatorKind.UNION, OperatorKind.OPAQUE} for n in chain):
            return False
        blocking = [e for e in self.stream_edges if e.target_id in chain and not e.is_forward]
        if any(isinstance(e.partitioner, GlobalPartitioner) for e in blocking):
            return False
        groups = {self.groups[e.id] for e in blocking if not isinstance(e.partitioner, BroadcastPartitioner)}
        scans = [self.sources[n] for n in chain if n in self.sources]
        if scans:
            return len(scans) == 1 and scans[0].scan.allows_any_parallelism and not groups
        return len(groups) == 1

    def update_node(self, node_id: int, **changes: Any) -> None:
        """Change fields of a node."""
        self.stream_nodes[node_id] = replace(self.stream_nodes[node_id], **changes)


def job_plan(draft: Draft, name: str) -> JobPlan:
    """Return the plan of a job."""
    graph = StreamGraph(draft.stream_nodes.values(), draft.stream_edges, name)
    widths = {
        group: parallelism
        for edge_id, group in draft.groups.items()
        if not isinstance(graph.edge(edge_id).partitioner, PulledRebalancePartitioner)  # it has more chunks than tasks
        and (parallelism := _user_parallelism(graph, graph.edge(edge_id).target_id)) is not None
    }
    parts = {part.name: getattr(draft, part.name) for part in fields(PlanParts)}
    width_groups = _width_groups(draft, widths)
    columns = column_names(graph) if draft.notes else {}
    choices = tuple(_choice(note, graph, columns) for note in draft.notes)
    return JobPlan(graph=graph, widths=widths, width_groups=width_groups, choices=choices, **parts)


def _choice(note: Note, graph: StreamGraph, columns: Mapping[str, str]) -> Choice:
    about = note.about
    subject = NameRef(about) if isinstance(about, str) else NodeRef(about, graph.node(about).name)
    explanation = None if note.explanation is None else note.explanation(graph, columns)
    return Choice(note.kind, subject, note.chosen, note.reason, note.figures, explanation)


def _user_parallelism(graph: StreamGraph, node_id: int) -> int | None:
    settings = (graph.node(member).parallelism for member in forward_group(graph, node_id))
    return next((parallelism for parallelism in settings if parallelism is not None), None)


def _width_groups(draft: Draft, widths: Mapping[int, int]) -> dict[int, int]:
    family = {group: group for group in draft.groups.values()}
    first: dict[int, int] = {}
    for edge in draft.stream_edges:
        group = draft.groups.get(edge.id)
        if group is None or group in widths or not draft.edges[edge.id].signature:
            continue
        target, source = sorted((family[first.setdefault(edge.source_id, group)], family[group]))
        family |= {member: target for member, representative in family.items() if representative == source}
    return family
