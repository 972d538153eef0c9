"""Translates Spark's optimised logical plan to a stream graph.

A new node starts where an operator needs its rows in a certain distribution. Narrow operators in between become a Calc.
An operator without a rule stays together with its inputs and runs as Spark plans it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.graph import Operator, OperatorKind
from penstock.graph.partitioner import FORWARD, Partitioner
from penstock.planner.draft import DraftBuilder, TranslatedNode
from penstock.planner.plan import EdgePlan, NodePlan, WriteKind
from penstock.planner.sharing import is_worth_sharing
from penstock.planner.translation.leaves import translate_leaf
from penstock.planner.translation.rules import rule_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config import Configuration
    from penstock.plan_hints import PlanHint
    from penstock.planner.sharing import EqualParts
    from penstock.planner.sources import SourceMaker
    from penstock.spark.expressions import Attributes
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


class Translator:
    """Translator of plans into a draft.

    Parameters
    ----------
    parts
        The equal subtrees of all plans.
    broadcast_threshold, broadcast_option
        The bytes up to which a join side is broadcast when planning (-1 for never), and the option that sets the limit.
    placeholders
        Returns the translated shared part and the attributes of a placeholder leaf, or None for any other leaf.

    Attributes
    ----------
    omitted_boundaries
        Repartitions that are omitted because the readers of their rows do not need them.
    source_hints
        The hints of the user, by leaf.
    row_limits
        The maximum number of rows that the query needs from a leaf.
    written
        The node that writes a join input, by its class among the equal parts and its written layout.
    """

    def __init__(
        self,
        bridge: Bridge,
        config: Configuration,
        builder: DraftBuilder,
        parts: EqualParts,
        sources: SourceMaker,
        broadcast_threshold: int,
        broadcast_option: str,
        placeholders: Callable[[LogicalNode], tuple[TranslatedNode, Attributes] | None],
    ) -> None:
        self.bridge = bridge
        self.config = config
        self.builder = builder
        self.parts = parts
        self.sources = sources
        self.broadcast_threshold = broadcast_threshold
        self.broadcast_option = broadcast_option
        self.placeholders = placeholders
        self.omitted_boundaries: set[LogicalNode] = set()
        self.source_hints: dict[LogicalNode, PlanHint] = {}
        self.row_limits: dict[LogicalNode, int] = {}
        self.written: dict[tuple[int, str], int] = {}
        self._first_of_class: dict[int, LogicalNode] = {}
        self._shared: dict[int, TranslatedNode] = {}
        self._is_worth_sharing: dict[LogicalNode, bool] = {}

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
            return translate_leaf(self, node)
        rule = rule_of(node.name)
        return self.opaque_node(node, OperatorKind.OPAQUE) if rule is None else rule(self, node)

    def opaque_node(
        self, node: LogicalNode, kind: OperatorKind, inputs: tuple[LogicalNode, ...] | None = None
    ) -> TranslatedNode:
        """Add an operator that Spark runs together with its inputs, including its exchanges."""
        node_id = self.builder.node(Operator(kind), node.name, NodePlan(node), description=node.description)
        for number, child in enumerate(node.children if inputs is None else inputs, 1):
            self.forward(self.translate(child), node_id, child, number)
        return TranslatedNode(node_id)

    # -- repeated parts ------------------------------------------------------------------------------------------

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
        self.builder.node_of[node] = translated.node_id
        return translated

    def record_leaves(self, number: int, node: LogicalNode) -> None:
        """Record the corresponding leaves of a repeated part and of its first occurrence."""
        first = self._first_of_class.setdefault(number, node)
        leaves, others = first.leaves(), node.leaves()
        if [leaf.name for leaf in leaves] == [leaf.name for leaf in others]:
            self.builder.same_leaf.update(zip(others, leaves, strict=True))

    # -- edges ---------------------------------------------------------------------------------------------------

    def forward(self, inner: TranslatedNode, target: int, child: LogicalNode, number: int = 1) -> None:
        """Add an edge that forwards rows within a task."""
        self.builder.edge(inner.node_id, target, FORWARD, self.edge_plan(child), number=number)

    def operator_edge(self, inner: TranslatedNode, target: int, node: LogicalNode, partitioner: Partitioner) -> str:
        """Add the exchange of an operator, a part of which may run before the exchange; return the id of the edge."""
        plan = self.edge_plan(node.children[0], WriteKind.OPERATOR, operator=node)
        return self.builder.edge(inner.node_id, target, partitioner, plan)

    def edge_plan(self, child: LogicalNode, write: WriteKind | None = None, **facts: Any) -> EdgePlan:
        """Return the plan of the edge that replaces an operator of the consumer's plan."""
        shared_part = self.placeholders(child)
        return EdgePlan(child, write, output=None if shared_part is None else shared_part[1], **facts)
