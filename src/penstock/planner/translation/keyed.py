"""Translates sorts, limits, and operators that need rows with equal keys in the same task, such as aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator, CalcOperator, Operator, OperatorKind, WindowOperator
from penstock.graph.partitioner import GLOBAL, ForwardForConsecutiveHashPartitioner, HashPartitioner, RangePartitioner
from penstock.planner.conditions import unrepeatable_reason
from penstock.planner.distribution import Distribution
from penstock.planner.draft import TranslatedNode
from penstock.planner.plan import NodePlan
from penstock.planner.translation.exchanges import omit_boundary
from penstock.planner.translation.translator import KEYED, Translator, translates
from penstock.spark.plans import catalyst
from penstock.spark.plans.logical_plan import LIMITS
from penstock.spark.plans.partial_states import keeps_distinct_values
from penstock.spark.plans.window_chunks import indivisible_reason

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode


@translates(*KEYED)
def translate_keyed(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by keys, unless rows with equal keys are already in the same task."""
    child = node.children[0]
    omit_boundary(translator, child)
    input_node = translator.translate(child)
    keys = catalyst.grouping_keys(node)
    texts = [key.key for key in keys]
    name = node.name if keys or node.name != "Aggregate" else "Global aggregate"
    node_id = translator.draft.add_node(_operator(node), name, NodePlan(node), description=node.description)
    if keys and input_node.distribution.colocates(texts):
        chained = ForwardForConsecutiveHashPartitioner(HashPartitioner(tuple(texts)))
        translator.add_operator_edge(input_node, node_id, node, chained)
        return TranslatedNode(node_id, input_node.distribution.after_projection(node.renamed_keys, node.keys))
    output_keys = node.keys_in_output(keys)
    partitioner = HashPartitioner(tuple(texts)) if keys else GLOBAL
    edge = translator.add_operator_edge(input_node, node_id, node, partitioner)
    if not output_keys:
        return TranslatedNode(node_id)
    hashed_by = (tuple(key.key for key in output_keys),)
    return TranslatedNode(node_id, Distribution(hashed_by, translator.draft.groups[edge]))


def _operator(node: LogicalNode) -> Operator:
    match node.name:
        case "Aggregate":
            return AggregateOperator(catalyst.unmergeable_reason(node), keeps_values=keeps_distinct_values(node))
        case "Window":
            return WindowOperator(indivisible_reason(node) or unrepeatable_reason(node.children[0]))
        case _:
            return Operator(KEYED[node.name])


@translates("Sort")
def translate_sort(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by ranges, unless the sort is within tasks."""
    input_node = translator.translate(node.children[0])
    assert node.sort is not None
    if not node.sort.is_global:
        node_id = translator.draft.add_node(CalcOperator(), node.name, NodePlan(node), description=node.description)
        translator.add_forward_edge(input_node, node_id, node.children[0])
        return TranslatedNode(node_id, input_node.distribution)
    operator = Operator(OperatorKind.SORT)
    node_id = translator.draft.add_node(operator, "Sort", NodePlan(node), description=node.description)
    translator.add_operator_edge(input_node, node_id, node, RangePartitioner(node.sort.order))
    return TranslatedNode(node_id)


@translates(*LIMITS)
def translate_limit(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a limit and the operators that Spark plans with it (offset, sort, projection) as a single node."""
    limit, below = node, node.children[0]
    while below.name in LIMITS:
        limit, below = below, below.children[0]
    _record_row_limit(translator, limit, below)
    if below.name == "Sort":
        below = below.children[0]
    elif below.name == "Project" and below.children[0].name == "Sort":
        below = below.children[0].children[0]
    return translator.add_opaque_node(node, OperatorKind.OPAQUE, (below,))


def _record_row_limit(translator: Translator, node: LogicalNode, below: LogicalNode) -> None:
    """Record how many rows the query needs from a scan, if only projections are between the scan and the limit."""
    while below.name == "Project":
        below = below.children[0]
    limit = catalyst.row_limit(node)
    if not below.children and limit is not None:
        translator.row_limits[below] = limit
