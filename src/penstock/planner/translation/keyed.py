"""Translates operators that need rows with equal keys in the same task, or all rows in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator, CalcOperator, Operator, OperatorKind, WindowOperator
from penstock.graph.partitioner import (
    GLOBAL,
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
    RangePartitioner,
)
from penstock.planner.conditions import unrepeatable_reason
from penstock.planner.distribution import Distribution
from penstock.planner.draft import TranslatedNode
from penstock.planner.plan import NodePlan
from penstock.planner.translation.exchanges import omit_boundary
from penstock.planner.translation.families import KEYED
from penstock.planner.translation.rules import translates
from penstock.spark import catalyst
from penstock.spark.partial_states import keeps_distinct_values
from penstock.spark.window_chunks import undividable_reason

if TYPE_CHECKING:
    from penstock.planner.translation.translator import Translator
    from penstock.spark.plans import LogicalNode


@translates(*KEYED)
def translate_keyed(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Exchange rows by keys, unless rows with equal keys are already in the same task."""
    child = node.children[0]
    omit_boundary(translator, child)
    inner = translator.translate(child)
    keys = catalyst.grouping_keys(node)
    texts = [key.key for key in keys]
    name = node.name if keys or node.name != "Aggregate" else "Global aggregate"
    node_id = translator.builder.node(_operator(node), name, NodePlan(node), description=node.description)
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
    return TranslatedNode(node_id, Distribution(hashed_by, translator.builder.groups[edge]))


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
        node_id = translator.builder.node(CalcOperator(), node.name, NodePlan(node), description=node.description)
        translator.forward(inner, node_id, node.children[0])
        return TranslatedNode(node_id, inner.distribution)
    operator = Operator(OperatorKind.SORT)
    node_id = translator.builder.node(operator, "Sort", NodePlan(node), description=node.description)
    translator.operator_edge(inner, node_id, node, RangePartitioner(node.sort.order))
    return TranslatedNode(node_id)
