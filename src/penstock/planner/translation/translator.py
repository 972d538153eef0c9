"""From Spark's optimised logical plan to a stream graph.

A node is cut off wherever an operator needs its rows in a certain distribution. Narrow operators between two cuts
become one Calc. An operator without a rule stays together with its inputs and runs as Spark would run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.graph import Operator, OperatorKind
from penstock.graph.partitioner import FORWARD, Partitioner
from penstock.planner.draft import DraftBuilder, TranslatedNode
from penstock.planner.plan import EdgePlan, NodePlan, WriteKind
from penstock.planner.sharing import is_worth_keeping
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
    """Translates plans into one draft.

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
    broadcast_threshold, broadcast_option
        Up to which size a join side is broadcast when planning, in bytes, -1 for never; and the option that sets it.
    placeholders
        For a leaf that stands for a part cut out of several sinks' plans: what it stands for, already translated.

    Attributes
    ----------
    read_in_place
        Repartitions that are left out, as what reads their rows can do without them.
    source_hints
        What the user said at leaves.
    row_limits
        The most rows that are wanted of leaves.
    written
        The node that writes a join input, by the input's class of equal parts and how it is written.
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
        self.read_in_place: set[LogicalNode] = set()
        self.source_hints: dict[LogicalNode, PlanHint] = {}
        self.row_limits: dict[LogicalNode, int] = {}
        self.written: dict[tuple[int, str], int] = {}
        self._first_of_class: dict[int, LogicalNode] = {}
        self._shared: dict[int, TranslatedNode] = {}
        self._is_worth_keeping: dict[LogicalNode, bool] = {}

    def translate(self, node: LogicalNode) -> TranslatedNode:
        """Return the graph node that gives a plan's rows; a expensive part that occurs again is the same node."""
        number = self.parts.class_of(node)
        if number is None or not self.is_worth_keeping(node):
            return self.noted(node, self._translate(node))
        if number not in self._shared:
            # Its readers will not share its vertex, so nothing is known of how they find the rows.
            self._shared[number] = TranslatedNode(self.noted(node, self._translate(node)).node_id)
        self.note_leaves(number, node)
        return self._shared[number]

    def _translate(self, node: LogicalNode) -> TranslatedNode:
        if not node.children:
            return translate_leaf(self, node)
        rule = rule_of(node.name)
        return self.one_piece(node, OperatorKind.OPAQUE) if rule is None else rule(self, node)

    def one_piece(
        self, node: LogicalNode, kind: OperatorKind, inputs: tuple[LogicalNode, ...] | None = None
    ) -> TranslatedNode:
        """Add an operator that Spark runs together with its inputs, exchanges included."""
        node_id = self.builder.node(Operator(kind), node.name, NodePlan(node), description=node.description)
        for number, child in enumerate(node.children if inputs is None else inputs, 1):
            self.forward(self.translate(child), node_id, child, number)
        return TranslatedNode(node_id)

    # -- parts that occur again ----------------------------------------------------------------------------------

    def is_shared(self, node: LogicalNode) -> bool:
        """Whether a part occurs again, and is written once for all its readers."""
        return self.parts.class_of(node) is not None and self.is_worth_keeping(node)

    def is_worth_keeping(self, node: LogicalNode) -> bool:
        """Whether a part that occurs again is better written once than run again."""
        if node not in self._is_worth_keeping:
            self._is_worth_keeping[node] = is_worth_keeping(node)
        return self._is_worth_keeping[node]

    def noted(self, node: LogicalNode, translated: TranslatedNode) -> TranslatedNode:
        """Note which graph node gives the rows of an operator."""
        self.builder.node_of[node] = translated.node_id
        return translated

    def note_leaves(self, number: int, node: LogicalNode) -> None:
        """Note which leaves of a part that occurs again are those of its first occurrence."""
        first = self._first_of_class.setdefault(number, node)
        leaves, others = first.leaves(), node.leaves()
        if [leaf.name for leaf in leaves] == [leaf.name for leaf in others]:
            self.builder.same_leaf.update(zip(others, leaves, strict=True))

    # -- edges ---------------------------------------------------------------------------------------------------

    def forward(self, inner: TranslatedNode, target: int, child: LogicalNode, number: int = 1) -> None:
        """Add an edge that hands rows over within a task."""
        self.builder.edge(inner.node_id, target, FORWARD, self.edge_plan(child), number=number)

    def operator_edge(self, inner: TranslatedNode, target: int, node: LogicalNode, partitioner: Partitioner) -> str:
        """Add the exchange of an operator, below which Spark may run a part of it; return the edge's id."""
        plan = self.edge_plan(node.children[0], WriteKind.OPERATOR, operator=node)
        return self.builder.edge(inner.node_id, target, partitioner, plan)

    def edge_plan(self, child: LogicalNode, write: WriteKind | None = None, **facts: Any) -> EdgePlan:
        """Return the plan of an edge from what is at a place of a consumer's plan."""
        stands_for = self.placeholders(child)
        return EdgePlan(child, write, output=None if stands_for is None else stands_for[1], **facts)
