"""Translates narrow operators: a run of them becomes a Calc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import CalcOperator, OperatorKind
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution
from penstock.planner.draft import TranslatedNode
from penstock.planner.plan import NodePlan
from penstock.planner.translation import exchanges
from penstock.planner.translation.repartitions import rows_before
from penstock.planner.translation.translator import CHEAP, NARROW, Translator, translates
from penstock.rebalance.adaptive_exchanges import stage_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.plans.nodes import LogicalNode

_LOSES_PARTITIONING = frozenset(
    {"Expand", "ArrowEvalPython", "BatchEvalPython", "ArrowEvalPythonUDTF", "BatchEvalPythonUDTF"}
)
"""Operators whose physical plans do not report the partitioning of their input (``Expand`` may set a key to null)."""


@translates(*NARROW)
def translate_calc(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a run of narrow operators as a node. The run ends at a leaf, an exchange, or a part with other readers."""
    if _only_removes_boundary_column(translator, node):
        return translator.translate(node.children[0])
    run = [node]
    while (
        run[-1].children[0].name in NARROW
        and not translator.is_shared(run[-1].children[0])
        and stage_at(run[-1]) is None
        and exchanges.pulled_at(translator, run[-1]) is None
    ):
        run.append(run[-1].children[0])
    pulled = exchanges.pulled_at(translator, run[-1])
    if pulled is not None:
        *above, function = run
        inner = exchanges.add_pulled(translator, function, *pulled)
        if not above:
            return inner
        node_id = _add_calc(translator, above)
        translator.forward(inner, node_id, function)
        return TranslatedNode(node_id)
    stage = stage_at(run[-1])
    below = run[-1].children[0]
    if not below.children:
        is_filtered_scan = all(part.name in CHEAP for part in run)
        inner = translator.translate_leaf(below, filtered=run[0] if is_filtered_scan else None)
    elif below.name == "Repartition" and exchanges.is_worth_pulling(translator, run):
        inner = exchanges.pulled(translator, below)
    elif stage is not None and below.name == "Repartition" and not translator.is_shared(below):
        inner = exchanges.without_slot_repartition(translator, below)
    else:
        inner = translator.translate(below)
    node_id = _add_calc(translator, run)
    if stage is not None:
        exchanges.add_adaptive_edge(translator, inner, node_id, below, stage)
        return TranslatedNode(node_id)
    translator.forward(inner, node_id, below)
    return TranslatedNode(node_id, _after(inner.distribution, run))


def _add_calc(translator: Translator, run: Sequence[LogicalNode]) -> int:
    return translator.draft.node(
        CalcOperator(is_cheap=all(part.name in CHEAP for part in run)),
        run[0].name if len(run) == 1 else "Calc",
        NodePlan(run[0]),
        description="; ".join(part.description for part in run),
    )


def _only_removes_boundary_column(translator: Translator, node: LogicalNode) -> bool:
    """Whether an operator has no effect because the boundary below it is omitted."""
    (below,) = node.children
    is_omitted = node.name == "Project" and below in translator.omitted_boundaries
    return is_omitted and node.ids == rows_before(translator, below).ids


def _after(distribution: Distribution, run: Sequence[LogicalNode]) -> Distribution:
    """Return the distribution after a run of operators, which is ordered from the top down."""
    for part in reversed(run):
        if distribution is UNKNOWN_DISTRIBUTION or part.name in _LOSES_PARTITIONING:
            return UNKNOWN_DISTRIBUTION
        distribution = distribution.after_projection(part.renames, part.keys)
    return distribution


@translates("Union")
def translate_union(translator: Translator, node: LogicalNode) -> TranslatedNode:
    """Add a union and its inputs as a single node."""
    return translator.opaque_node(node, OperatorKind.UNION)
