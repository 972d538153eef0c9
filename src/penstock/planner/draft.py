"""The draft of a job plan: built by the translation, completed by the passes, and converted to the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.decisions.log import Choice, DecisionKind, Explanation, NameRef, NodeRef
from penstock.graph import Operator, OperatorKind, StreamEdge, StreamGraph, StreamNode
from penstock.graph.context import chained_nodes
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
    from penstock.spark.plans.joins import JoinFacts
    from penstock.spark.plans.nodes import LogicalNode


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """A decision of the planner about a node id or a name; `explain` gets the final graph and its `column_names`."""

    about: int | str
    chosen: str
    reason: str
    kind: DecisionKind = DecisionKind.SHARING
    figures: Mapping[str, int] = field(default_factory=dict)
    explain: Callable[[StreamGraph, Mapping[str, str]], Explanation] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TranslatedNode:
    """The node that returns the rows of a translated part of a plan, and their distribution."""

    node_id: int
    distribution: Distribution = UNKNOWN_DISTRIBUTION


@dataclass(frozen=True, kw_only=True)
class Draft(PlanParts):
    """The draft of a job, which the translation builds and each pass of the planner refines.

    `joins` has the operator and facts of each equi-join, by node id. `node_of` has the id of the node that returns the
    rows of an operator. Of a repeated part, only the first occurrence is in the graph: `first_leaf` has, for each leaf
    of any occurrence, the corresponding leaf of the first occurrence.
    """

    stream_nodes: dict[int, StreamNode] = field(default_factory=dict)
    stream_edges: list[StreamEdge] = field(default_factory=list)
    choices: list[DraftChoice] = field(default_factory=list)
    joins: dict[int, tuple[LogicalNode, JoinFacts]] = field(default_factory=dict)
    node_of: dict[LogicalNode, int] = field(default_factory=dict)
    first_leaf: dict[LogicalNode, LogicalNode] = field(default_factory=dict)
    _new_groups: Iterator[int] = field(default_factory=lambda: count(1))

    def add_node(self, operator: Operator, name: str, plan: NodePlan, *, description: str = "", **settings: Any) -> int:
        """Add a node with settings such as its parallelism, and return its id."""
        node_id = len(self.stream_nodes) + 1
        self.stream_nodes[node_id] = StreamNode(node_id, operator, name, description or name, **settings)
        self.nodes[node_id] = plan
        return node_id

    def add_edge(
        self, source: int, target: int, partitioner: Partitioner, plan: EdgePlan, *, number: int = 1, group: int = 0
    ) -> str:
        """Add an edge to the input `number`; return its id. `group` is its exchange group, 0 for a new group."""
        edge_id = f"{source}_{target}_{number}"
        while edge_id in self.edges:
            edge_id += "'"
        self.stream_edges.append(StreamEdge(edge_id, source, target, partitioner, number))
        self.edges[edge_id] = plan
        if partitioner != FORWARD:  # chained edges with another partitioner may become exchanges
            self.groups[edge_id] = group or self.new_group()
        return edge_id

    def out_edges(self, node_id: int) -> list[StreamEdge]:
        """Return the edges that leave a node."""
        return [edge for edge in self.stream_edges if edge.source_id == node_id]

    def new_group(self) -> int:
        """Return the number of a new exchange group."""
        return next(self._new_groups)

    def chained_upstream(self, node_id: int) -> set[int]:
        """Return the ids of a node and of the upstream nodes that would share its vertex."""
        members, todo = {node_id}, [node_id]
        while todo:
            current = todo.pop()
            for edge in self.stream_edges:
                if edge.target_id == current and edge.is_forward and edge.source_id not in members:
                    members.add(edge.source_id)
                    todo.append(edge.source_id)
        return members

    def accepts_parallelism(self, node_id: int, parallelism: int | None, maximum: int | None = None) -> bool:
        """Whether the vertex that ends with a node can run with `parallelism` tasks, and with at most `maximum` tasks.

        None is no requirement. A vertex can run with any number of tasks if its input, except broadcasts, comes from a
        single exchange group, or from a single scan that can be split into any number of parts. But it cannot if the
        user set another number, or if it has a union, an opaque operator or a GLOBAL input.
        """
        chain = self.chained_upstream(node_id)
        settings = {number for n in chain if (number := self.stream_nodes[n].parallelism) is not None}
        if parallelism is not None and not settings <= {parallelism}:
            return False
        if maximum is not None and max(settings, default=0) > maximum:
            return False
        if any(self.stream_nodes[n].kind in {OperatorKind.UNION, OperatorKind.OPAQUE} for n in chain):
            return False
        exchanges = [e for e in self.stream_edges if e.target_id in chain and not e.is_forward]
        if any(isinstance(e.partitioner, GlobalPartitioner) for e in exchanges):
            return False
        groups = {self.groups[e.id] for e in exchanges if not isinstance(e.partitioner, BroadcastPartitioner)}
        scans = [self.sources[n] for n in chain if n in self.sources]
        if scans:
            return len(scans) == 1 and scans[0].scan.allows_any_parallelism and not groups
        return len(groups) == 1

    def update_node(self, node_id: int, **changes: Any) -> None:
        """Change fields of a node."""
        self.stream_nodes[node_id] = replace(self.stream_nodes[node_id], **changes)


def build_job_plan(draft: Draft, name: str) -> JobPlan:
    """Return the plan of a job."""
    graph = StreamGraph(draft.stream_nodes.values(), draft.stream_edges, name)
    user_subpartitions = {
        group: parallelism
        for edge_id, group in draft.groups.items()
        if not isinstance(graph.edge(edge_id).partitioner, PulledRebalancePartitioner)  # has more chunks than tasks
        and (parallelism := _user_parallelism(graph, graph.edge(edge_id).target_id)) is not None
    }
    parts = {part.name: getattr(draft, part.name) for part in fields(PlanParts)}
    families = _families(draft, user_subpartitions)
    columns = column_names(graph) if draft.choices else {}
    choices = tuple(_final_choice(choice, graph, columns) for choice in draft.choices)
    return JobPlan(graph=graph, user_subpartitions=user_subpartitions, families=families, choices=choices, **parts)


def _final_choice(choice: DraftChoice, graph: StreamGraph, columns: Mapping[str, str]) -> Choice:
    about = choice.about
    subject = NameRef(about) if isinstance(about, str) else NodeRef(about, graph.node(about).name)
    explanation = None if choice.explain is None else choice.explain(graph, columns)
    return Choice(choice.kind, subject, choice.chosen, choice.reason, choice.figures, explanation)


def _user_parallelism(graph: StreamGraph, node_id: int) -> int | None:
    settings = (graph.node(member).parallelism for member in chained_nodes(graph, node_id))
    return next((parallelism for parallelism in settings if parallelism is not None), None)


def _families(draft: Draft, user_subpartitions: Mapping[int, int]) -> dict[int, int]:
    """Return the representative of each group's family (see `JobPlan`); edges without a signature share no family."""
    family = {group: group for group in draft.groups.values()}
    first_group_of: dict[int, int] = {}
    for edge in draft.stream_edges:
        group = draft.groups.get(edge.id)
        if group is None or group in user_subpartitions or not draft.edges[edge.id].signature:
            continue
        smaller, larger = sorted((family[first_group_of.setdefault(edge.source_id, group)], family[group]))
        family |= {member: smaller for member, representative in family.items() if representative == larger}
    return family
