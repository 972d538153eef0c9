"""Translates Spark's optimized logical plan to a stream graph.

A new node starts where an operator needs its rows in a certain distribution. Narrow operators in between become a Calc.
An operator without a rule (`translates`) runs in the vertex of its inputs, as Spark plans it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.graph import Operator, OperatorKind, ScanOperator
from penstock.graph.partitioner import FORWARD, Partitioner
from penstock.planner.draft import Draft, TranslatedNode
from penstock.planner.plan import EdgePlan, NodePlan, WriteKind
from penstock.planner.sharing import EqualParts, is_worth_sharing
from penstock.spark.bridge.jvm import Bridge, class_names

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.hints.plan_hints import PlanHint
    from penstock.planner.sources import SourceFactory
    from penstock.spark.plans.expressions import Attributes
    from penstock.spark.plans.nodes import LogicalNode

NARROW = class_names(
    "Project Filter Generate Expand ArrowEvalPython BatchEvalPython MapInPandas MapInArrow PythonMapInArrow "
    "DeserializeToObject SerializeFromObject MapElements MapPartitions Sample ScriptTransformation TypedFilter "
    "AppendColumns ArrowEvalPythonUDTF BatchEvalPythonUDTF"
)
"""Operators that process single rows, or the rows of a task in their order."""

CHEAP = frozenset({"Project", "Filter"})
"""Operators with negligible cost per row."""

KEYED = {
    "Aggregate": OperatorKind.AGGREGATE,
    "Window": OperatorKind.WINDOW,
    "WindowGroupLimit": OperatorKind.WINDOW,
    "FlatMapGroupsInPandas": OperatorKind.GROUPED_MAP,
    "FlatMapGroupsInArrow": OperatorKind.GROUPED_MAP,
}
"""Operators that need rows with equal keys in the same task."""

Rule = Callable[["Translator", "LogicalNode"], TranslatedNode]
RULES: dict[str, Rule] = {}
"""The functions that translate operators, by class names such as ``Join``; see `translates`."""


def translates(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule for operators, by class names such as ``Join``."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has two rules")
            RULES[name] = rule
        return rule

    return register


@dataclass(eq=False)
class Translator:
    """Translates plans to nodes and edges of a draft.

    `equal_parts` are the equal subtrees of all plans. `broadcast_threshold` is the maximum bytes of a join side that
    is broadcast when planning (-1: never); `broadcast_option` is the key of this option. For a leaf that represents a
    part shared by several outputs, `shared_part_of` returns this part, translated, and the leaf's columns; else None.
    """

    bridge: Bridge
    config: Configuration
    draft: Draft
    equal_parts: EqualParts
    sources: SourceFactory
    broadcast_threshold: int
    broadcast_option: str
    shared_part_of: Callable[[LogicalNode], tuple[TranslatedNode, Attributes] | None]
    omitted_boundaries: set[LogicalNode] = field(default_factory=set, init=False)
    """Repartitions after barrier stages that are omitted because the readers do not need them, see `omit_boundary`."""
    source_hints: dict[LogicalNode, PlanHint] = field(default_factory=dict, init=False)
    """The hint for the source of a leaf, by leaf."""
    row_limits: dict[LogicalNode, int] = field(default_factory=dict, init=False)
    """The maximum number of rows that the query needs from a leaf, by leaf."""
    input_writers: dict[tuple[int, str], int] = field(default_factory=dict, init=False)
    """The node that writes a join input, by the class of the input in `equal_parts` and the written layout."""
    _first_of_class: dict[int, LogicalNode] = field(default_factory=dict, init=False)  # first occurrence of a part
    _shared: dict[int, TranslatedNode] = field(default_factory=dict, init=False)  # also by class in `equal_parts`
    _is_worth_sharing: dict[LogicalNode, bool] = field(default_factory=dict, init=False)

    def translate(self, node: LogicalNode) -> TranslatedNode:
        """Translate a plan; return the node that computes its rows. Equal parts may share a node."""
        equal_class = self.equal_parts.class_of(node)
        if equal_class is None or not self.is_worth_sharing(node):
            return self.record_node(node, self._translate(node))
        if equal_class not in self._shared:
            # The readers of a shared part are in other vertices; they do not know the distribution of its rows.
            self._shared[equal_class] = TranslatedNode(self.record_node(node, self._translate(node)).node_id)
        self.record_leaves(equal_class, node)
        return self._shared[equal_class]

    def _translate(self, node: LogicalNode) -> TranslatedNode:
        if not node.children:
            return self.translate_leaf(node)
        rule = RULES.get(node.name)
        return self.add_opaque_node(node, OperatorKind.OPAQUE) if rule is None else rule(self, node)

    def translate_leaf(self, node: LogicalNode, filtered: LogicalNode | None = None) -> TranslatedNode:
        """Add a leaf's source, or return the shared part it represents; `filtered` is the leaf with its filters."""
        shared_part = self.shared_part_of(node)
        if shared_part is not None:
            return shared_part[0]
        hint = self.source_hints.get(node)
        source = self.sources.create(node, filtered or node, hint, self.row_limits.get(node))
        parallelism = source.options.parallelism
        node_id = self.draft.add_node(
            ScanOperator(),
            f"Source: {source.coordinator.name}",
            NodePlan(node),
            description=node.description,
            parallelism=parallelism if parallelism is not None and source.scan.allows_any_parallelism else None,
            location=hint.location if hint else None,
        )
        self.draft.sources[node_id] = source
        return self.record_node(node, TranslatedNode(node_id))

    def add_opaque_node(
        self, node: LogicalNode, kind: OperatorKind, inputs: tuple[LogicalNode, ...] | None = None
    ) -> TranslatedNode:
        """Add an operator that Spark runs, with all its exchanges, in the vertex of `inputs` (None: its children)."""
        node_id = self.draft.add_node(Operator(kind), node.name, NodePlan(node), description=node.description)
        for number, child in enumerate(node.children if inputs is None else inputs, 1):
            self.add_forward_edge(self.translate(child), node_id, child, number)
        return TranslatedNode(node_id)

    def is_shared(self, node: LogicalNode) -> bool:
        """Whether a part is repeated, and written once for all its readers."""
        return self.equal_parts.class_of(node) is not None and self.is_worth_sharing(node)

    def is_worth_sharing(self, node: LogicalNode) -> bool:
        """Whether writing a repeated part once is cheaper than running it again."""
        if node not in self._is_worth_sharing:
            self._is_worth_sharing[node] = is_worth_sharing(node)
        return self._is_worth_sharing[node]

    def record_node(self, node: LogicalNode, translated: TranslatedNode) -> TranslatedNode:
        """Record the graph node that returns the rows of an operator."""
        self.draft.node_of[node] = translated.node_id
        return translated

    def record_leaves(self, equal_class: int, occurrence: LogicalNode) -> None:
        """Record the leaves of a repeated part with the corresponding leaves of its first occurrence."""
        first_occurrence = self._first_of_class.setdefault(equal_class, occurrence)
        first_leaves, leaves = first_occurrence.leaves(), occurrence.leaves()
        if [leaf.name for leaf in first_leaves] == [leaf.name for leaf in leaves]:
            self.draft.first_leaf.update(zip(leaves, first_leaves, strict=True))

    def add_forward_edge(self, rows: TranslatedNode, target: int, child: LogicalNode, number: int = 1) -> None:
        """Add an edge that forwards rows within a task."""
        self.draft.add_edge(rows.node_id, target, FORWARD, self.edge_plan(child), number=number)

    def add_operator_edge(self, rows: TranslatedNode, target: int, node: LogicalNode, partitioner: Partitioner) -> str:
        """Add an operator's input edge and return its id; the operator may partly run before it (partial aggregate)."""
        plan = self.edge_plan(node.children[0], WriteKind.OPERATOR, operator=node)
        return self.draft.add_edge(rows.node_id, target, partitioner, plan)

    def edge_plan(self, child: LogicalNode, write: WriteKind | None = None, **facts: Any) -> EdgePlan:
        """Return the plan of an edge whose rows replace the operator `child` in the consumer's plan."""
        shared_part = self.shared_part_of(child)
        return EdgePlan(child, write, output=None if shared_part is None else shared_part[1], **facts)
