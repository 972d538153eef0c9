"""Leaves become sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import ScanOperator
from penstock.planner.draft import TranslatedNode
from penstock.planner.plan import NodePlan

if TYPE_CHECKING:
    from penstock.planner.translation.translator import Translator
    from penstock.spark.plans import LogicalNode


def translate_leaf(translator: Translator, node: LogicalNode, filtered: LogicalNode | None = None) -> TranslatedNode:
    """Add the source of a leaf.

    Parameters
    ----------
    node
        The leaf.
    filtered
        The leaf with the filters right above it, if there are such.
    """
    stands_for = translator.placeholders(node)
    if stands_for is not None:
        return stands_for[0]
    hint = translator.source_hints.get(node)
    source = translator.sources.make(node, filtered or node, hint, translator.row_limits.get(node))
    given = source.options.parallelism
    node_id = translator.builder.node(
        ScanOperator(),
        f"Source: {source.coordinator.name}",
        NodePlan(node),
        description=node.description,
        parallelism=given if given is not None and source.scan.takes_any_number else None,
        location=hint.location if hint else None,
    )
    translator.builder.sources[node_id] = source
    return translator.noted(node, TranslatedNode(node_id))
