"""Translates limits, which Spark runs together with the sort and the projection below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import OperatorKind
from penstock.planner.translation.rules import translates
from penstock.spark import catalyst
from penstock.spark.limits import LIMITS

if TYPE_CHECKING:
    from penstock.planner.draft import TranslatedNode
    from penstock.planner.translation.translator import Translator
    from penstock.spark.plans import LogicalNode


@translates(*LIMITS)
def translate_limit(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a limit and the operators that Spark plans with it (offset, sort) as a single node."""
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
