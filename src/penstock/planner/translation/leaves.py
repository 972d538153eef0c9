"""Translates leaves to sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import ScanOperator
from penstock.planner.draft import TranslatedNode
from penstock.planner.plan import NodePlan

if TYPE_CHECKING:
    from penstock.planner.translation.translator import Translator
    from penstock.spark.plans import LogicalNode


def translate_leaf(translator: Translator, node: LogicalNode, filtered: LogicalNode | None = None) -> TranslatedNode:
    """Add the source of a leaf; `filtered` is the leaf with the filters directly above it, if there are any."""
    shared_part = translator.placeholders(node)
    if shared_part is not None:
        return shared_part[0]
    hint = translator.source_hints.get(node)
    source = translator.sources.make(node, filtered or node, hint, translator.row_limits.get(node))
    parallelism = source.options.parallelism
    node_id = translator.builder.node(
        ScanOperator(),
        f"Source: {source.coordinator.name}",
        NodePlan(node),
        description=node.description,
        parallelism=parallelism if parallelism is not None and source.scan.allows_any_parallelism else None,
        location=hint.location if hint else None,
    )
    translator.builder.sources[node_id] = source
    return translator.record_node(node, TranslatedNode(node_id))
