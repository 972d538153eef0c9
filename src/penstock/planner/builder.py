"""A stream graph in the making."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.graph import UNDECIDED, OperatorKind, StreamEdge, StreamGraph, StreamNode
from penstock.graph.partitioner import FORWARD, RESCALE, BroadcastPartitioner, GlobalPartitioner, Partitioner
from penstock.optimizer.early_aggregation import GROUPING_SETS
from penstock.optimizer.joins import NUMBER, SIDES
from penstock.planner.distribution import NOT_KNOWN, Distribution
from penstock.planner.plan import EdgePlan, JobPlan, NodePlan, SourcePlan, WriteKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.connectors.base import Sink, SinkStage
    from penstock.location import SourceLine
    from penstock.marks import Stage
    from penstock.optimizer.early_aggregation import GroupingSets
    from penstock.planner.filters import FilterFinder
    from penstock.spark.joins import JoinFacts
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class Out:
    """What a translated part of a plan gives: the node, and how its rows lie."""

    node_id: int
    distribution: Distribution = NOT_KNOWN


@dataclass
class GraphBuilder:
    """Collects nodes and edges; `finish` makes them a job plan."""

    nodes: dict[int, StreamNode] = field(default_factory=dict)
    edges: list[StreamEdge] = field(default_factory=list)
    node_plans: dict[int, NodePlan] = field(default_factory=dict)
    edge_plans: dict[str, EdgePlan] = field(default_factory=dict)
    sources: dict[int, SourcePlan] = field(default_factory=dict)
    sinks: dict[int, Sink] = field(default_factory=dict)
    stages: dict[int, tuple[int, SinkStage]] = field(default_factory=dict)
    exchanges: dict[int, Stage] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    joins: dict[int, tuple[LogicalNode, JoinFacts]] = field(default_factory=dict)
    _group_count: int = 0

    def node(
        self,
        kind: OperatorKind,
        name: str,
        plan: NodePlan,
        *,
        description: str = "",
        parallelism: int = UNDECIDED,
        location: SourceLine | None = None,
        **properties: Any,
    ) -> int:
        """Add a node; return its id."""
        node_id = len(self.nodes) + 1
        self.nodes[node_id] = StreamNode(
            node_id, kind, name, description or name, parallelism, location=location, properties=properties
        )
        self.node_plans[node_id] = plan
        return node_id

    def edge(
        self, source: int, target: int, partitioner: Partitioner, plan: EdgePlan, *, number: int = 1, group: int = -1
    ) -> str:
        """Add an edge; return its id. An edge that is not FORWARD belongs to an exchange group."""
        edge_id = f"{source}_{target}_{number}"
        while edge_id in self.edge_plans:
            edge_id += "'"
        self.edges.append(StreamEdge(edge_id, source, target, partitioner, number))
        self.edge_plans[edge_id] = plan
        if partitioner != FORWARD:  # also where it is chained, as it may become an exchange
            self.groups[edge_id] = self.new_group() if group < 0 else group
        return edge_id

    def new_group(self) -> int:
        """Return the number of a new exchange group."""
        self._group_count += 1
        return self._group_count

    def merge_groups(self, kept: int, gone: int) -> None:
        """Make two exchange groups one."""
        for edge_id, group in self.groups.items():
            if group == gone:
                self.groups[edge_id] = kept

    def chained(self, node_id: int) -> set[int]:
        """Return the nodes at or before a node that would share its vertex."""
        found, todo = {node_id}, [node_id]
        while todo:
            current = todo.pop()
            for edge in self.edges:
                if edge.target_id == current and edge.is_forward and edge.source_id not in found:
                    found.add(edge.source_id)
                    todo.append(edge.source_id)
        return found

    def can_be_given(self, node_id: int, parallelism: int) -> bool:
        """Whether the vertex that ends with a node can be told its number of tasks.

        It can if all of them come from one set of exchanges, or from one scan of files.
        """
        chain = self.chained(node_id)
        nodes = [self.nodes[n] for n in chain]
        if any(node.kind in {OperatorKind.UNION, OperatorKind.OPAQUE} for node in nodes):
            return False
        if any(node.parallelism not in {UNDECIDED, parallelism} for node in nodes):
            return False
        blocking = [e for e in self.edges if e.target_id in chain and not e.is_forward]
        if any(isinstance(e.partitioner, GlobalPartitioner) for e in blocking):
            return False
        groups = {self.groups[e.id] for e in blocking if not isinstance(e.partitioner, BroadcastPartitioner)}
        scans = [self.sources[n] for n in chain if n in self.sources]
        if scans:
            return len(scans) == 1 and scans[0].is_files and not groups
        return len(groups) == 1

    def give(self, node_id: int, **changes: Any) -> None:
        """Change a node."""
        self.nodes[node_id] = replace(self.nodes[node_id], **changes)

    def finish(self, name: str) -> JobPlan:
        """Return the job plan; results with several kinds of readers are made readable by all of them."""
        self._materialise_shared()
        graph = self._with_bytes(StreamGraph(self.nodes.values(), self.edges, name))
        widths = {
            group: parallelism
            for edge_id, group in self.groups.items()
            if (parallelism := self._given(graph.edge(edge_id).target_id)) != UNDECIDED
        }
        return JobPlan(
            graph=graph,
            nodes=self.node_plans,
            edges=self.edge_plans,
            sources=self.sources,
            sinks=self.sinks,
            groups=self.groups,
            widths=widths,
            families=self._families(widths),
            stages=self.stages,
            exchanges=self.exchanges,
            notes=tuple(self.notes),
        )

    def _families(self, widths: Mapping[int, int]) -> dict[int, int]:
        """Return, for exchange groups that a node writes for together, one that stands for all of them."""
        family = {group: group for group in self.groups.values()}
        first: dict[int, int] = {}
        for edge in self.edges:
            group = self.groups.get(edge.id)
            if group is None or group in widths or not self.edge_plans[edge.id].signature:
                continue
            kept, gone = sorted((family[first.setdefault(edge.source_id, group)], family[group]))
            family |= {one: kept for one, now in family.items() if now == gone}
        return family

    def _with_bytes(self, graph: StreamGraph) -> StreamGraph:
        """Tell sources what they hold, and joins what the sources below each side hold."""
        held = {node_id: source.bytes_read for node_id, source in self.sources.items()}
        below: dict[int, frozenset[int]] = {}
        asked = {path.steps[0] for node in graph for path in node.properties.get("filters", ())}
        asked |= {
            one
            for node in graph
            if GROUPING_SETS in node.properties
            for one in self.chained(node.properties[GROUPING_SETS].node_id)
        }
        changed = []
        for node in graph:
            edges = graph.in_edges(node.id)
            own = frozenset({node.id} if node.id in held else ())
            below[node.id] = own.union(*(below[edge.source_id] for edge in edges))
            facts: dict[str, Any] = {}
            if own:
                facts = {"bytes": held[node.id], "rows": self.sources[node.id].rows if node.id in asked else -1}
            if node.kind is OperatorKind.JOIN and len(edges) == len(SIDES):
                number = {NUMBER[side]: side for side in SIDES}
                for edge in edges:
                    side = number[edge.type_number]
                    facts[f"{side}_sources"] = below[edge.source_id]
                    facts[f"{side}_bytes"] = sum(held[source] for source in below[edge.source_id])
            if facts:
                changed.append(replace(node, properties={**node.properties, **facts}))
        return graph.replace(nodes=changed)

    def is_chained(self, node_id: int, side: str) -> bool:
        """Whether a side of a join is not exchanged before it."""
        return any(e.is_forward for e in self.edges if e.target_id == node_id and e.type_number == NUMBER[side])

    def find_chains(self) -> None:
        """Tell joins and projections what is needed to know whether they can change places."""
        for node_id, (join, facts) in self.joins.items():
            if facts.join_type == "Inner":
                outputs = {
                    f"{side}_output": frozenset(child.ids) for side, child in zip(SIDES, join.children, strict=True)
                }
                condition = {"condition_ids": frozenset(join.references), "cannot_fail": facts.cannot_fail}
                self._tell(node_id, **condition, **outputs)
        for node_id, plan in self.node_plans.items():
            if self.nodes[node_id].kind is OperatorKind.CALC and plan.top is not None and plan.top.name == "Project":
                below = plan.top.children[0]
                if self.nodes[node_id].name == "Project" and below.has(plan.top.ids):
                    self._tell(node_id, drops_columns=True)

    def tell_hints(self) -> None:
        """Tell joins what the user said of how to run them."""
        for node_id, (_, facts) in self.joins.items():
            self._tell(node_id, hints=(facts.left_hint, facts.right_hint))

    def find_grouping_sets(self, find: Callable[[LogicalNode], GroupingSets | None]) -> None:
        """Tell aggregates what multiplies their rows, and the sources below how many rows they have."""
        for node_id, plan in self.node_plans.items():
            if self.nodes[node_id].kind is OperatorKind.AGGREGATE and plan.top is not None:
                found = find(plan.top)
                if found is not None:
                    self._tell(node_id, **{GROUPING_SETS: found})

    def _tell(self, node_id: int, **properties: Any) -> None:
        node = self.nodes[node_id]
        self.nodes[node_id] = replace(node, properties={**node.properties, **properties})

    def leaves_out(self, node_id: int) -> bool:
        """Whether a node is a source that leaves out data by exact keys of its columns."""
        source = self.sources.get(node_id)
        return source is not None and source.splits is not None and source.splits.uses_predicates

    def find_filters(self, finder: FilterFinder) -> None:
        """Tell joins where their sides can be filtered; above what several consumers read, as all get the same."""
        readers: dict[int, int] = {}
        for edge in self.edges:
            readers[edge.source_id] = readers.get(edge.source_id, 0) + 1
        for node_id, (join, _) in self.joins.items():
            paths, ways = [], []
            for path, way in finder.ways(join):
                shared = [i for i, place in enumerate(way.places) if readers[place.node_id] > 1]
                start = shared[-1] + 1 if shared else 0
                if way.places[start:]:
                    paths.append(replace(path, steps=path.steps[start:], prunes=path.prunes and not start))
                    ways.append(replace(way, places=way.places[start:]))
            self.node_plans[node_id] = replace(self.node_plans[node_id], ways=tuple(ways))
            self._tell(node_id, filters=tuple(paths))

    def _given(self, node_id: int) -> int:
        """Return the parallelism that is given to the vertex a node will be part of."""
        todo, seen = [node_id], {node_id}
        while todo:
            current = todo.pop()
            if self.nodes[current].parallelism != UNDECIDED:
                return self.nodes[current].parallelism
            for edge in self.edges:
                if edge.is_forward and current in (edge.source_id, edge.target_id):
                    for end in (edge.source_id, edge.target_id):
                        if end not in seen:
                            seen.add(end)
                            todo.append(end)
        return UNDECIDED

    def _materialise_shared(self) -> None:
        for node_id in list(self.nodes):
            outgoing = [e for e in self.edges if e.source_id == node_id]
            if len(outgoing) < 2:
                continue
            plans = [self.edge_plans[e.id] for e in outgoing]
            consumers = " and ".join(self._first_after(e.target_id) for e in outgoing)
            self.notes.append((self._last_before(node_id), "run once", f"read {len(outgoing)} times, by {consumers}"))
            signatures = {plan.signature for plan in plans}
            if len(signatures) == 1 and "" not in signatures and all(not e.is_forward for e in outgoing):
                continue
            group = self.new_group()
            for edge in outgoing:
                self._through_rows(edge, group)

    def _first_after(self, node_id: int) -> str:
        """Return the name of the first operator from a node on that is more than a projection."""
        while self.nodes[node_id].kind is OperatorKind.CALC:
            following = [edge.target_id for edge in self.edges if edge.source_id == node_id]
            if len(following) != 1:
                break
            node_id = following[0]
        return self.nodes[node_id].name

    def _last_before(self, node_id: int) -> str:
        """Return the names of the operators that give a node's rows, projections left out."""
        chain = [self.nodes[n] for n in sorted(self.chained(node_id), reverse=True)]
        names = [node.name for node in chain if node.kind is not OperatorKind.CALC]
        return " -> ".join(names) or self.nodes[node_id].name

    def _through_rows(self, edge: StreamEdge, group: int) -> None:
        """Let an edge read materialised rows; unless it only forwards, a node in between writes what it wants."""
        plan = self.edge_plans[edge.id]
        self.edges.remove(edge)
        rows = replace(plan, write=WriteKind.ROWS, operator=None, keys=(), signature="rows")
        if edge.is_forward or plan.write is WriteKind.ROWS:
            self.edges.append(replace(edge, partitioner=RESCALE))
            self.edge_plans[edge.id] = rows
            self.groups[edge.id] = group
            return
        between = self.node(OperatorKind.CALC, "Read shared", NodePlan(None))
        self.edge(edge.source_id, between, RESCALE, rows, group=group)
        self.edges.append(replace(edge, source_id=between))
