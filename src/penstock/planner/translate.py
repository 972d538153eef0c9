"""From Spark's optimised logical plan to a stream graph.

A node is cut off wherever an operator needs its rows in a certain distribution. Narrow operators between two cuts
become one Calc. An operator that is not known here stays together with its inputs and runs as Spark would run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.graph import UNDECIDED, OperatorKind
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    GLOBAL,
    REBALANCE,
    RESCALE,
    AdaptiveRebalancePartitioner,
    AdaptiveRescalePartitioner,
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
    Partitioner,
    RangePartitioner,
)
from penstock.marks import Mark, recall, stage_of
from penstock.optimizer.joins import NUMBER, SIDES
from penstock.planner.builder import GraphBuilder, Out
from penstock.planner.distribution import NOT_KNOWN, Distribution, keeps_keys, static_build_side
from penstock.planner.plan import EdgePlan, NodePlan, WriteKind
from penstock.planner.sharing import is_heavy, pays
from penstock.rebalance.adapted import dealt_out_at
from penstock.spark import catalyst
from penstock.spark.barrier import function_id, is_boundary, task_slots
from penstock.spark.catalyst import expression_key
from penstock.spark.dataframes import mark_of
from penstock.spark.jobs import cluster_cores
from penstock.spark.joins import JoinFacts, join_facts
from penstock.spark.jvm import class_name, items
from penstock.spark.limits import LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.config import Configuration
    from penstock.marks import Stage
    from penstock.planner.sharing import EqualParts
    from penstock.planner.sources import SourceMaker
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

NARROW = frozenset(
    {
        "Project", "Filter", "Generate", "Expand", "ArrowEvalPython", "BatchEvalPython", "MapInPandas", "MapInArrow",
        "PythonMapInArrow", "DeserializeToObject", "SerializeFromObject", "MapElements", "MapPartitions", "Sample",
        "ScriptTransformation", "TypedFilter", "AppendColumns", "ArrowEvalPythonUDTF",
        "BatchEvalPythonUDTF",
    }
)  # fmt: skip
_LOSES_LAYOUT = frozenset(
    {"Expand", "ArrowEvalPython", "BatchEvalPython", "ArrowEvalPythonUDTF", "BatchEvalPythonUDTF"}
)
"""Spark's plans of these do not say how their rows lie, whatever lies below (``Expand`` may set a key to null)."""
KEYED = {
    "Aggregate": OperatorKind.AGGREGATE,
    "Window": OperatorKind.WINDOW,
    "WindowInPandas": OperatorKind.WINDOW,
    "ArrowWindowPython": OperatorKind.WINDOW,
    "WindowGroupLimit": OperatorKind.WINDOW,
    "FlatMapGroupsInPandas": OperatorKind.GROUPED_MAP,
    "FlatMapGroupsInArrow": OperatorKind.GROUPED_MAP,
}


class Translator:
    """Translates plans into one graph.

    Parameters
    ----------
    bridge
        The session.
    config
        The job's options.
    builder
        Takes the nodes and edges.
    parts
        Equal subtrees of all plans.
    sources
        Makes sources of leaves.
    broadcast_threshold
        Spark's own, in bytes; -1 for never.
    placeholders
        For a leaf that stands for a part cut out of several sinks' plans: what it stands for, already translated.
    """

    def __init__(
        self,
        bridge: Bridge,
        config: Configuration,
        builder: GraphBuilder,
        parts: EqualParts,
        sources: SourceMaker,
        broadcast_threshold: int,
        placeholders: Callable[[LogicalNode], tuple[Out, Any] | None],
    ) -> None:
        self._bridge = bridge
        self._config = config
        self._builder = builder
        self._parts = parts
        self._sources = sources
        self._threshold = broadcast_threshold
        self._placeholders = placeholders
        self.node_of: dict[LogicalNode, int] = {}
        self.same_leaf: dict[LogicalNode, LogicalNode] = {}
        self._translated: dict[int, LogicalNode] = {}
        self._shared: dict[int, Out] = {}
        self._worth_keeping: dict[LogicalNode, bool] = {}
        self._direct: set[LogicalNode] = set()
        self._source_marks: dict[LogicalNode, Mark] = {}
        self._row_limits: dict[LogicalNode, int] = {}
        self._written: dict[tuple[int, str], int] = {}
        self._rules: Mapping[str, Callable[[LogicalNode], Out]] = {
            **dict.fromkeys(NARROW, self._calc),
            **dict.fromkeys(KEYED, self._keyed),
            **dict.fromkeys(LIMITS, self._limit),
            "Join": self._join,
            "Sort": self._sort,
            "Union": self._union,
            "Repartition": self._repartition,
            "RepartitionByExpression": self._repartition_by,
            "RebalancePartitions": self._rebalance,
        }

    def translate(self, node: LogicalNode) -> Out:
        """Return the graph node that gives a plan's rows; a heavy part that occurs again is the same node."""
        number = self._parts.class_of(node)
        if number is None or not self._pays(node):
            return self._noted(node, self._translate(node))
        if number not in self._shared:
            # Its readers will not share its vertex, so nothing is known of how they find the rows.
            self._shared[number] = Out(self._noted(node, self._translate(node)).node_id)
        self._note_leaves(number, node)
        return self._shared[number]

    def _note_leaves(self, number: int, node: LogicalNode) -> None:
        """Remember which leaves of a part that occurs again are those of its first occurrence."""
        first = self._translated.setdefault(number, node)
        leaves, others = first.leaves(), node.leaves()
        if [leaf.name for leaf in leaves] == [leaf.name for leaf in others]:
            self.same_leaf.update(zip(others, leaves, strict=True))

    def _noted(self, node: LogicalNode, out: Out) -> Out:
        self.node_of[node] = out.node_id
        return out

    def _translate(self, node: LogicalNode) -> Out:
        if not node.children:
            return self._leaf(node)
        return self._rules.get(node.name, self._opaque)(node)

    # -- leaves and narrow operators -----------------------------------------------------------------------------

    def _leaf(self, node: LogicalNode, scan: LogicalNode | None = None) -> Out:
        stands_for = self._placeholders(node)
        if stands_for is not None:
            return stands_for[0]
        mark = self._source_marks.get(node)
        source = self._sources.make(node, scan or node, mark, self._row_limits.get(node))
        given = source.options.parallelism
        node_id = self._builder.node(
            OperatorKind.SOURCE,
            f"Source: {source.coordinator.name}",
            NodePlan(node),
            description=node.description,
            parallelism=given if given is not None and source.is_files else UNDECIDED,
            location=mark.location if mark else None,
        )
        self._builder.sources[node_id] = source
        return self._noted(node, Out(node_id))

    def _calc(self, node: LogicalNode) -> Out:
        run = [node]
        while (
            run[-1].children[0].name in NARROW
            and not self._is_shared(run[-1].children[0])
            and self._exchange_in(run[-1]) is None
        ):
            run.append(run[-1].children[0])
        exchange = self._exchange_in(run[-1])
        below = run[-1].children[0]
        if not below.children:
            filters = [part for part in run if part.name in {"Project", "Filter"}]
            inner = self._leaf(below, scan=filters[0] if len(filters) == len(run) else None)
        elif exchange is not None and below.name == "Repartition" and not self._is_shared(below):
            inner = self._bounded(below)
        else:
            inner = self.translate(below)
        distribution = inner.distribution
        for part in reversed(run):
            if distribution is NOT_KNOWN or exchange is not None:
                break
            loses = part.name in _LOSES_LAYOUT
            distribution = NOT_KNOWN if loses else distribution.after(part.renames, part.keys)
        node_id = self._builder.node(
            OperatorKind.CALC,
            node.name if len(run) == 1 else "Calc",
            NodePlan(node),
            description="; ".join(p.description for p in run),
            cheap=all(part.name in {"Project", "Filter"} for part in run),
        )
        if exchange is None:
            self._forward(inner, node_id, below)
            return Out(node_id, distribution)
        self._adaptive_edge(inner, node_id, below, exchange)
        return Out(node_id)

    def _bounded(self, node: LogicalNode) -> Out:
        """Leave out what brings rows to as many tasks as there are slots, where so many tasks can make them at once."""
        inner = self.translate(node.children[0])
        if self._builder.can_be_given(inner.node_id, int(node.handle.numPartitions())):
            return inner
        return self._redistribute(node, inner, int(node.handle.numPartitions()))

    def _exchange_in(self, node: LogicalNode) -> Stage | None:
        """Return what an operator was made for that is one stage with the rebalance or rescale before it."""
        if node.name not in {"MapInArrow", "PythonMapInArrow"}:
            return None
        return stage_of(function_id(node.handle))

    def _adaptive_edge(self, inner: Out, node_id: int, below: LogicalNode, stage: Stage) -> None:
        """Deal rows out within the stage: as many tasks run as there are slots, for they must run together."""
        mark = stage.mark
        assert mark.exchange is not None
        _, traverse = mark.exchange.resolved(self._config, mark.parallelism)
        kind = AdaptiveRescalePartitioner if mark.exchange.pointwise else AdaptiveRebalancePartitioner
        builder = self._builder
        builder.exchanges[node_id] = stage
        builder.give(node_id, max_parallelism=task_slots(self._bridge), location=mark.location)
        if mark.parallelism is not None and builder.can_be_given(inner.node_id, mark.parallelism):
            builder.give(inner.node_id, parallelism=mark.parallelism)
        builder.edge(inner.node_id, node_id, kind(traverse), self.edge_plan(below))
        compared = f"each batch goes to the idlest of {traverse} consumers"
        builder.notes.append((builder.nodes[node_id].name, "adaptive", compared))

    def read_directly(self, child: LogicalNode) -> None:
        """Leave out the boundary behind an adaptive exchange, as what reads the rows can do without it."""
        while child.name in NARROW and self._exchange_in(child) is None and not self._is_shared(child):
            child = child.children[0]
        if child.name == "RepartitionByExpression" and is_boundary(child.handle):
            self._direct.add(child)

    def _is_shared(self, node: LogicalNode) -> bool:
        return self._parts.class_of(node) is not None and self._pays(node)

    def _pays(self, node: LogicalNode) -> bool:
        """Whether a part that occurs again is better written once than run again."""
        if node not in self._worth_keeping:
            self._worth_keeping[node] = pays(node)
        return self._worth_keeping[node]

    def _opaque(self, node: LogicalNode) -> Out:
        return self._one_piece(node, OperatorKind.OPAQUE, node.children)

    def _one_piece(self, node: LogicalNode, kind: OperatorKind, inputs: tuple[LogicalNode, ...]) -> Out:
        """Add an operator that Spark runs together with its inputs, exchanges included."""
        node_id = self._builder.node(kind, node.name, NodePlan(node), description=node.description)
        for number, child in enumerate(inputs, 1):
            inner = self.translate(child)
            self._forward(inner, node_id, child, number)
        return Out(node_id)

    def _limit(self, node: LogicalNode) -> Out:
        """Take a limit and what Spark plans with it (offset, sort) as one piece."""
        limit, inner = node, node.children[0]
        while inner.name in LIMITS:
            limit, inner = inner, inner.children[0]
        self._note_limit(limit, inner)
        if inner.name == "Sort":
            inner = inner.children[0]
        elif inner.name == "Project" and inner.children[0].name == "Sort":
            inner = inner.children[0].children[0]
        return self._one_piece(node, OperatorKind.OPAQUE, (inner,))

    def _note_limit(self, node: LogicalNode, inner: LogicalNode) -> None:
        """Remember how many rows are wanted of a scan; a filter between them could need any number."""
        while inner.name == "Project":
            inner = inner.children[0]
        limit = catalyst.row_limit(node)
        if not inner.children and limit is not None:
            self._row_limits[inner] = limit

    def _union(self, node: LogicalNode) -> Out:
        return self._one_piece(node, OperatorKind.UNION, node.children)

    # -- operators that need a distribution ----------------------------------------------------------------------

    def _keyed(self, node: LogicalNode) -> Out:
        child = node.children[0]
        self.read_directly(child)
        inner = self.translate(child)
        keys = catalyst.grouping_keys(node)
        texts = [expression_key(key) for key in keys]
        node_id = self._builder.node(
            KEYED[node.name],
            node.name if keys or node.name != "Aggregate" else "Global aggregate",
            NodePlan(node),
            description=node.description,
            **(catalyst.merging_facts(self._bridge, node) if node.name == "Aggregate" else {}),
        )
        if keys and inner.distribution.together(texts):
            chained = ForwardForConsecutiveHashPartitioner(HashPartitioner(tuple(texts)))
            self._operator_edge(inner, node_id, node, chained)
            after = inner.distribution.after(node.renames, node.keys)
            return Out(node_id, after)
        there = catalyst.keys_in_output(node, keys)
        edge = self._operator_edge(inner, node_id, node, HashPartitioner(tuple(texts)) if keys else GLOBAL)
        if not there:
            return Out(node_id)
        hashed_by = (tuple(expression_key(key) for key in there),)
        return Out(node_id, Distribution(hashed_by, self._builder.groups[edge]))

    def _sort(self, node: LogicalNode) -> Out:
        if not catalyst.is_global_sort(node):
            return self._calc_like(node)
        child = node.children[0]
        inner = self.translate(child)
        keys = tuple(str(order.toString()) for order in items(node.handle.order()))
        node_id = self._builder.node(OperatorKind.SORT, "Sort", NodePlan(node), description=node.description)
        self._operator_edge(inner, node_id, node, RangePartitioner(keys))
        return Out(node_id)

    def _calc_like(self, node: LogicalNode) -> Out:
        child = node.children[0]
        inner = self.translate(child)
        node_id = self._builder.node(OperatorKind.CALC, node.name, NodePlan(node), description=node.description)
        self._forward(inner, node_id, child)
        return Out(node_id, inner.distribution)

    def _repartition(self, node: LogicalNode) -> Out:
        if not node.handle.shuffle():
            return self._opaque(node)  # coalesce(n): Spark merges tasks in place
        inner = self.translate(node.children[0])
        if dealt_out_at(node) is not None:  # it is there for plain Spark
            return inner
        return self._redistribute(node, inner, int(node.handle.numPartitions()))

    def _repartition_by(self, node: LogicalNode) -> Out:
        if node in self._direct:
            return self.translate(node.children[0])
        keys = items(node.handle.partitionExpressions())
        number = node.handle.optNumPartitions()
        wanted = int(number.get()) if number.isDefined() else UNDECIDED
        if any(class_name(key) == "SortOrder" for key in keys):
            inner = self.translate(node.children[0])
            node_id = self._builder.node(
                OperatorKind.REPARTITION, "Repartition by range", NodePlan(node), parallelism=wanted
            )
            texts = tuple(str(key.toString()) for key in keys)
            self._operator_edge(inner, node_id, node, RangePartitioner(texts))
            return Out(node_id)
        return self._redistribute(node, self.translate(node.children[0]), wanted, keys)

    def _rebalance(self, node: LogicalNode) -> Out:
        number = mark_of(node.handle)
        if number is None:
            inner = self.translate(node.children[0])
            return self._redistribute(node, inner, UNDECIDED, items(node.handle.partitionExpressions()))
        return self._marked(node, recall(number))

    def _redistribute(self, node: LogicalNode, inner: Out, wanted: int, keys: list[Any] | None = None) -> Out:
        (child,) = node.children
        node_id = self._builder.node(
            OperatorKind.REPARTITION,
            "Repartition",
            NodePlan(None),
            description=node.description,
            parallelism=wanted,
        )
        texts = tuple(expression_key(key) for key in keys or [])
        if not keys:
            self._builder.edge(inner.node_id, node_id, REBALANCE, self.edge_plan(child, WriteKind.ROWS))
            return Out(node_id)
        plan = self.edge_plan(child, WriteKind.SIDE, keys=tuple(keys))
        edge = self._builder.edge(inner.node_id, node_id, HashPartitioner(texts), plan)
        known = Distribution((texts,), self._builder.groups[edge]) if wanted == UNDECIDED else NOT_KNOWN
        return Out(node_id, known)

    def _marked(self, node: LogicalNode, mark: Mark) -> Out:
        """Drop a mark, and give what it says to the operator below."""
        child = leaf = node.children[0]
        builder = self._builder
        if mark.source is not None:
            while leaf.name in NARROW:
                leaf = leaf.children[0]
            if not leaf.children:
                self._source_marks[leaf] = mark
                return self.translate(child)
            note = (mark.source.name, "not asked", "its DataFrame is more than a scan, so it has no tasks of its own")
            builder.notes.append(note)
        inner = self.translate(child)
        changes: dict[str, Any] = {"location": mark.location}
        if mark.name:
            changes["name"] = mark.name
        if mark.exchange is not None:
            return self._dealt_out(inner, child, mark)
        if mark.parallelism is None:
            builder.give(inner.node_id, **changes)
            return inner
        if builder.can_be_given(inner.node_id, mark.parallelism):
            builder.give(inner.node_id, parallelism=mark.parallelism, **changes)
            return inner
        name = mark.name or f"with_parallelism({mark.parallelism})"
        node_id = builder.node(
            OperatorKind.REPARTITION, name, NodePlan(None), parallelism=mark.parallelism, location=mark.location
        )
        builder.edge(inner.node_id, node_id, REBALANCE, self.edge_plan(child, WriteKind.ROWS))
        why = f"the tasks of {builder.nodes[inner.node_id].name} cannot be given, so its rows are dealt out once more"
        builder.notes.append((name, str(mark.parallelism), why))
        return Out(node_id)

    def _dealt_out(self, inner: Out, child: LogicalNode, mark: Mark) -> Out:
        """Deal rows out evenly; those that a function consumes go to as many tasks as can run, however few they are."""
        assert mark.exchange is not None
        wanted = mark.parallelism
        if wanted is None:
            wanted = cluster_cores(self._bridge) if mark.exchange.function is not None else UNDECIDED
        name, partitioner = ("Rescale", RESCALE) if mark.exchange.pointwise else ("Rebalance", REBALANCE)
        node_id = self._builder.node(
            OperatorKind.REPARTITION, name, NodePlan(None), parallelism=wanted, location=mark.location
        )
        self._builder.edge(inner.node_id, node_id, partitioner, self.edge_plan(child, WriteKind.ROWS))
        return Out(node_id)

    # -- joins ---------------------------------------------------------------------------------------------------

    def _join(self, node: LogicalNode) -> Out:
        facts = join_facts(self._bridge, node)
        if facts is None or not facts.is_hashable:
            return self._one_piece(node, OperatorKind.JOIN, node.children)
        left, right = node.children
        build = self._static_build_side(node, facts)
        node_id = self._builder.node(
            OperatorKind.JOIN,
            "Join",
            NodePlan(node, {side: facts.handles(side) for side in SIDES}),
            description=node.description,
            join_type=facts.join_type,
            hinted=bool(facts.left_hint or facts.right_hint),
            left_open=catalyst.reduces(left),
            right_open=catalyst.reduces(right),
        )
        self._builder.joins[node_id] = node, facts
        return self._broadcast(node, node_id, facts, build) if build else self._shuffled(node, node_id, facts)

    def _static_build_side(self, node: LogicalNode, facts: JoinFacts) -> str:
        left, right = (catalyst.size_in_bytes(child.handle) for child in node.children)
        return static_build_side(facts.join_type, left, right, facts.left_hint, facts.right_hint, self._threshold)

    def _broadcast(self, node: LogicalNode, node_id: int, facts: JoinFacts, build: str) -> Out:
        sides = {"left": (1, node.children[0]), "right": (2, node.children[1])}
        number, child = sides.pop(build)
        positions = _positions(child, [key.text for key in facts.keys(build)])
        signature = f"broadcast by {positions}" if positions else ""
        plan = self.edge_plan(child, WriteKind.BROADCAST, operator=node, signature=signature)
        self._builder.edge(self._producer(child, signature), node_id, BROADCAST, plan, number=number)
        ((number, probe),) = sides.values()
        inner = self.translate(probe)
        self._forward(inner, node_id, probe, number)
        if facts.join_type != "Inner" or not inner.distribution.hashed_by:
            return Out(node_id, inner.distribution)
        texts = [(left.text, right.text) for left, right in zip(facts.left, facts.right, strict=True)]
        equal = {there: here for here, there in texts} if build == "left" else dict(texts)
        return Out(node_id, inner.distribution.equated(equal))

    def _shuffled(self, node: LogicalNode, node_id: int, facts: JoinFacts) -> Out:
        builder = self._builder
        children = dict(zip(("left", "right"), node.children, strict=True))
        keys = {side: facts.handles(side) for side in SIDES}
        texts = {side: [key.text for key in facts.keys(side)] for side in SIDES}
        outs: dict[str, Out] = {}
        order: list[int] | None = None
        group = -1
        for side in ("left", "right"):
            if not self._may_be_hashed(children[side]) or self._is_written(children[side], texts[side]):
                continue
            out = outs[side] = self.translate(children[side])
            found = out.distribution.order_like(texts[side])
            if found is None or (order is not None and found != order) or catalyst.filters_groups(children[side]):
                continue
            if group >= 0 and out.distribution.group != group:
                builder.merge_groups(group, out.distribution.group)
            order, group = found, group if group >= 0 else out.distribution.group
            child = children.pop(side)
            plan = self.edge_plan(child, WriteKind.SIDE, keys=tuple(keys[side][i] for i in order))
            chained = ForwardForConsecutiveHashPartitioner(HashPartitioner(tuple(texts[side][i] for i in order)))
            builder.edge(out.node_id, node_id, chained, plan, number=NUMBER[side], group=group)
        order = order or list(range(len(facts.left)))
        group = group if group >= 0 else builder.new_group()
        texts = {side: [texts[side][i] for i in order] for side in texts}
        for side, child in children.items():
            side_keys = [keys[side][i] for i in order]
            signature = _positions(child, texts[side])
            producer = self._producer(child, signature, outs.get(side))
            builder.edge(
                producer,
                node_id,
                HashPartitioner(tuple(texts[side])),
                self.edge_plan(child, WriteKind.SIDE, keys=tuple(side_keys), signature=signature),
                number=NUMBER[side],
                group=group,
            )
        kept = tuple(tuple(texts[side]) for side in texts if keeps_keys(facts.join_type, side))
        return Out(node_id, Distribution(kept, group) if kept else NOT_KNOWN)

    def _may_be_hashed(self, node: LogicalNode) -> bool:
        """Whether a join input could lie hashed already; a light input cannot, and may be written once for several."""
        return is_heavy(node) or any(part.name.startswith("Repartition") for part in node.walk())

    # -- edges ---------------------------------------------------------------------------------------------------

    def _forward(self, inner: Out, target: int, child: LogicalNode, number: int = 1) -> None:
        self._builder.edge(inner.node_id, target, FORWARD, self.edge_plan(child), number=number)

    def _operator_edge(self, inner: Out, target: int, node: LogicalNode, partitioner: Partitioner) -> str:
        plan = self.edge_plan(node.children[0], WriteKind.OPERATOR, operator=node)
        return self._builder.edge(inner.node_id, target, partitioner, plan)

    def edge_plan(self, child: LogicalNode, write: WriteKind | None = None, **facts: Any) -> EdgePlan:
        """Return the plan of an edge from what is at a place of a consumer's plan."""
        stands_for = self._placeholders(child)
        return EdgePlan(child, write, output=None if stands_for is None else stands_for[1], **facts)

    def _producer(self, child: LogicalNode, signature: str, out: Out | None = None) -> int:
        """Return the node that writes a join input; equal ones that are written alike are one node.

        Parameters
        ----------
        child, signature
            The input, and how it is written.
        out
            The input's node, if there is one already.
        """
        number = self._parts.class_of(child)
        if number is None or not signature or self._pays(child):
            return (out or self.translate(child)).node_id
        key = (number, signature)
        if out is not None or key not in self._written:
            self._written[key] = (out or self.translate(child)).node_id
        self._note_leaves(number, child)
        return self._written[key]

    def _is_written(self, child: LogicalNode, keys: list[str]) -> bool:
        """Whether an equal join input is written by the same keys already."""
        return (self._parts.class_of(child), _positions(child, keys)) in self._written


def _positions(child: LogicalNode, keys: list[str]) -> str:
    """Return the keys as positions in the input's columns, empty if they are not plain columns."""
    places = [child.keys.index(key) if key in child.keys else None for key in keys]
    return "" if None in places else f"hash{places}"
