"""Translates operators that need rows with equal keys in the same task, or all rows in order, and limits."""

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
from penstock.spark.plans.limits import LIMITS
from penstock.spark.plans.partial_states import keeps_distinct_values
from penstock.spark.plans.window_chunks import undividable_reason

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode


@translates(*KEYED)
def translate_keyed(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by keys, unless rows with equal keys are already in the same task."""
    child = node.children[0]
    omit_boundary(translator, child)
    inner = translator.translate(child)
    keys = catalyst.grouping_keys(node)
    texts = [key.key for key in keys]
    name = node.name if keys or node.name != "Aggregate" else "Global aggregate"
    node_id = translator.draft.node(_operator(node), name, NodePlan(node), description=node.description)
    if keys and inner.distribution.colocates(texts):
        chained = ForwardForConsecutiveHashPartitioner(HashPartitioner(tuple(texts)))
        translator.operator_edge(inner, node_id, node, chained)
        return TranslatedNode(node_id, inner.distribution.after_projection(node.renames, node.keys))
    output_keys = node.keys_in_output(keys)
    partitioner = HashPartitioner(tuple(texts)) if keys else GLOBAL
    edge = translator.operator_edge(inner, node_id, node, partitioner)
    if not output_keys:
        return TranslatedNode(node_id)
    hashed_by = (tuple(key.key for key in output_keys),)
    return TranslatedNode(node_id, Distribution(hashed_by, translator.draft.groups[edge]))


def _operator(node: LogicalNode) -> Operator:
    match node.name:
        case "Aggregate":
            return AggregateOperator(catalyst.unmergeable_reason(node), keeps_values=keeps_distinct_values(node))
        case "Window":
            return WindowOperator(undividable_reason(node) or unrepeatable_reason(node.children[0]))
        case _:
            return Operator(KEYED[node.name])


@translates("Sort")
def translate_sort(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by ranges, unless the sort is within tasks."""
    inner = translator.translate(node.children[0])
    assert node.sort is not None
    if not node.sort.is_global:
        node_id = translator.draft.node(CalcOperator(), node.name, NodePlan(node), description=node.description)
        translator.forward(inner, node_id, node.children[0])
        return TranslatedNode(node_id, inner.distribution)
    operator = Operator(OperatorKind.SORT)
    node_id = translator.draft.node(operator, "Sort", NodePlan(node), description=node.description)
    translator.operator_edge(inner, node_id, node, RangePartitioner(node.sort.order))
    return TranslatedNode(node_id)


@translates(*LIMITS)
def translate_limit(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a limit and the operators that Spark plans with it (offset, sort, projection) as a single node."""
    limit, inner = node, node.children[0]
    while inner.name in LIMITS:
        limit, inner = inner, inner.children[0]
    _record_row_limit(translator, limit, inner)
    if inner.name == "Sort":
        inner = inner.children[0]
    elif inner.name == "Project" and inner.children[0].name == "Sort":
        inner = inner.children[0].children[0]
    return translator.opaque_node(node, OperatorKind.OPAQUE, (inner,))


def _record_row_limit(translator: Translator, node: LogicalNode, inner: LogicalNode) -> None:
    """Record the number of rows that the query needs from a scan; a filter in between could need any number."""
    while inner.name == "Project":
        inner = inner.children[0]
    limit = catalyst.row_limit(node)
    if not inner.children and limit is not None:
        translator.row_limits[inner] = limit
