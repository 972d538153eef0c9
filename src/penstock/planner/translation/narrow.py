"""Translates unions, and narrow operators (without exchange): consecutive narrow operators become a Calc node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.graph import CalcOperator, OperatorKind
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution
from penstock.planner.draft import TranslatedNode
from penstock.planner.plan import NodePlan
from penstock.planner.translation import exchanges
from penstock.planner.translation.repartitions import rows_before_boundary
from penstock.planner.translation.translator import CHEAP, NARROW, Translator, translates
from penstock.rebalance.adaptive_exchanges import consumer_stage_at

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode

_HIDES_PARTITIONING = frozenset(
    {"Expand", "ArrowEvalPython", "BatchEvalPython", "ArrowEvalPythonUDTF", "BatchEvalPythonUDTF"}
)
"""Operators whose physical plans do not report the partitioning of their input (``Expand`` may set a key to null)."""


@translates(*NARROW)
def translate_calc(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a node for all narrow operators above a shared part, an adaptive exchange, or an operator of another kind."""
    if _only_removes_boundary_column(translator, node):
        return translator.translate(node.children[0])
    operators = [node]
    while (
        operators[-1].children[0].name in NARROW
        and not translator.is_shared(operators[-1].children[0])
        and consumer_stage_at(operators[-1]) is None
        and exchanges.pulled_exchange_at(translator, operators[-1]) is None
    ):
        operators.append(operators[-1].children[0])
    pulled = exchanges.pulled_exchange_at(translator, operators[-1])
    if pulled is not None:
        *above, function = operators
        input_node = exchanges.add_pulled(translator, function, pulled)
        if not above:
            return input_node
        node_id = _add_calc(translator, above)
        translator.add_forward_edge(input_node, node_id, function)
        return TranslatedNode(node_id)
    stage = consumer_stage_at(operators[-1])
    below = operators[-1].children[0]
    if not below.children:
        is_filtered_scan = all(part.name in CHEAP for part in operators)
        input_node = translator.translate_leaf(below, filtered=operators[0] if is_filtered_scan else None)
    elif below.name == "Repartition" and exchanges.is_worth_pulling(translator, operators):
        input_node = exchanges.add_pulled_repartition(translator, below)
    elif stage is not None and below.name == "Repartition" and not translator.is_shared(below):
        input_node = exchanges.translate_stage_repartition(translator, below)
    else:
        input_node = translator.translate(below)
    node_id = _add_calc(translator, operators)
    if stage is not None:
        exchanges.add_adaptive_edge(translator, input_node, node_id, below, stage)
        return TranslatedNode(node_id)
    translator.add_forward_edge(input_node, node_id, below)
    return TranslatedNode(node_id, _distribution_after(input_node.distribution, operators))


def _add_calc(translator: Translator, operators: Sequence[LogicalNode]) -> int:
    return translator.draft.add_node(
        CalcOperator(is_cheap=all(part.name in CHEAP for part in operators)),
        operators[0].name if len(operators) == 1 else "Calc",
        NodePlan(operators[0]),
        description="; ".join(part.description for part in operators),
    )


def _only_removes_boundary_column(translator: Translator, node: LogicalNode) -> bool:
    """Whether an operator only drops the column that the omitted boundary below it (`omit_boundary`) partitions by."""
    (below,) = node.children
    is_omitted = node.name == "Project" and below in translator.omitted_boundaries
    return is_omitted and node.ids == rows_before_boundary(translator, below).ids


def _distribution_after(distribution: Distribution, operators: Sequence[LogicalNode]) -> Distribution:
    """Return the distribution after narrow operators, which are in order from the top down."""
    for part in reversed(operators):
        if distribution is UNKNOWN_DISTRIBUTION or part.name in _HIDES_PARTITIONING:
            return UNKNOWN_DISTRIBUTION
        distribution = distribution.after_projection(part.renamed_keys, part.keys)
    return distribution


@translates("Union")
def translate_union(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a union and its inputs as a single node."""
    return translator.add_opaque_node(node, OperatorKind.UNION)
