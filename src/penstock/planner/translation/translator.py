"""Translates Spark's optimised logical plan to a stream graph.

A new node starts where an operator needs its rows in a certain distribution. Narrow operators in between become a Calc.
An operator without a rule (`translates`) stays together with its inputs and runs as Spark plans it.
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
    from penstock.planner.sources import SourceMaker
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
_RULES: dict[str, Rule] = {}


def translates(*names: str) -> Callable[[Rule], Rule]:
    """Register a function for operators by class name, such as ``Join``."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"{name} is translated twice")
            _RULES[name] = rule
        return rule

    return register


def rule_of(name: str) -> Rule | None:
    """Return the function that translates an operator, or None if there is none."""
    return _RULES.get(name)


@dataclass(eq=False)
class Translator:
    """Translator of plans into a draft.

    `parts` are the equal subtrees of all plans. `broadcast_threshold` are the bytes up to which a join side is
    broadcast when planning (-1 for never), and `broadcast_option` sets that limit. `placeholders` returns the
    translated shared part and the attributes of a placeholder leaf, or None for any other leaf.
    """

    bridge: Bridge
    config: Configuration
    draft: Draft
    parts: EqualParts
    sources: SourceMaker
    broadcast_threshold: int
    broadcast_option: str
    placeholders: Callable[[LogicalNode], tuple[TranslatedNode, Attributes] | None]
    omitted_boundaries: set[LogicalNode] = field(default_factory=set, init=False)
    """Repartitions that are omitted because the readers of their rows do not need them."""
    source_hints: dict[LogicalNode, PlanHint] = field(default_factory=dict, init=False)
    row_limits: dict[LogicalNode, int] = field(default_factory=dict, init=False)
    """The maximum number of rows that the query needs from a leaf."""
    written: dict[tuple[int, str], int] = field(default_factory=dict, init=False)
    """The node that writes a join input, by its class among the equal parts and its written layout."""
    _first_of_class: dict[int, LogicalNode] = field(default_factory=dict, init=False)
    _shared: dict[int, TranslatedNode] = field(default_factory=dict, init=False)
    _is_worth_sharing: dict[LogicalNode, bool] = field(default_factory=dict, init=False)

    def translate(self, node: LogicalNode) -> TranslatedNode:
        """Return the node that returns the rows of a plan. Repeated expensive subplans map to one node."""
        number = self.parts.class_of(node)
        if number is None or not self.is_worth_sharing(node):
            return self.record_node(node, self._translate(node))
        if number not in self._shared:
            # The readers do not share its vertex, so the distribution of the rows they read is unknown.
            self._shared[number] = TranslatedNode(self.record_node(node, self._translate(node)).node_id)
        self.record_leaves(number, node)
        return self._shared[number]

    def _translate(self, node: LogicalNode) -> TranslatedNode:
        if not node.children:
            return self.translate_leaf(node)
        rule = rule_of(node.name)
        return self.opaque_node(node, OperatorKind.OPAQUE) if rule is None else rule(self, node)

    def translate_leaf(self, node: LogicalNode, filtered: LogicalNode | None = None) -> TranslatedNode:
        """Add the source of a leaf; `filtered` is the leaf with the filters directly above it, if there are any."""
        shared_part = self.placeholders(node)
        if shared_part is not None:
            return shared_part[0]
        hint = self.source_hints.get(node)
        source = self.sources.make(node, filtered or node, hint, self.row_limits.get(node))
        parallelism = source.options.parallelism
        node_id = self.draft.node(
            ScanOperator(),
            f"Source: {source.coordinator.name}",
            NodePlan(node),
            description=node.description,
            parallelism=parallelism if parallelism is not None and source.scan.allows_any_parallelism else None,
            location=hint.location if hint else None,
        )
        self.draft.sources[node_id] = source
        return self.record_node(node, TranslatedNode(node_id))

    def opaque_node(
        self, node: LogicalNode, kind: OperatorKind, inputs: tuple[LogicalNode, ...] | None = None
    ) -> TranslatedNode:
        """Add an operator that Spark runs together with its inputs, including its exchanges."""
        node_id = self.draft.node(Operator(kind), node.name, NodePlan(node), description=node.description)
        for number, child in enumerate(node.children if inputs is None else inputs, 1):
            self.forward(self.translate(child), node_id, child, number)
        return TranslatedNode(node_id)

    def is_shared(self, node: LogicalNode) -> bool:
        """Whether a part is repeated and written once for all its readers."""
        return self.parts.class_of(node) is not None and self.is_worth_sharing(node)

    def is_worth_sharing(self, node: LogicalNode) -> bool:
        """Whether writing a repeated part once is cheaper than running it again."""
        if node not in self._is_worth_sharing:
            self._is_worth_sharing[node] = is_worth_sharing(node)
        return self._is_worth_sharing[node]

    def record_node(self, node: LogicalNode, translated: TranslatedNode) -> TranslatedNode:
        """Record the graph node that returns the rows of an operator."""
        self.draft.node_of[node] = translated.node_id
        return translated

    def record_leaves(self, number: int, node: LogicalNode) -> None:
        """Record the corresponding leaves of a repeated part and of its first occurrence."""
        first = self._first_of_class.setdefault(number, node)
        leaves, others = first.leaves(), node.leaves()
        if [leaf.name for leaf in leaves] == [leaf.name for leaf in others]:
            self.draft.same_leaf.update(zip(others, leaves, strict=True))

    def forward(self, inner: TranslatedNode, target: int, child: LogicalNode, number: int = 1) -> None:
        """Add an edge that forwards rows within a task."""
        self.draft.edge(inner.node_id, target, FORWARD, self.edge_plan(child), number=number)

    def operator_edge(self, inner: TranslatedNode, target: int, node: LogicalNode, partitioner: Partitioner) -> str:
        """Add the exchange of an operator, a part of which may run before the exchange; return the id of the edge."""
        plan = self.edge_plan(node.children[0], WriteKind.OPERATOR, operator=node)
        return self.draft.edge(inner.node_id, target, partitioner, plan)

    def edge_plan(self, child: LogicalNode, write: WriteKind | None = None, **facts: Any) -> EdgePlan:
        """Return the plan of the edge that replaces an operator of the consumer's plan."""
        shared_part = self.placeholders(child)
        return EdgePlan(child, write, output=None if shared_part is None else shared_part[1], **facts)
