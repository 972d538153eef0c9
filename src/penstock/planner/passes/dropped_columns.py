"""Marks projections that only drop columns, so that the joins before and after them can be reordered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.graph import CalcOperator

if TYPE_CHECKING:
    from penstock.graph import Operator
    from penstock.planner.draft import Draft


def mark_dropped_columns(draft: Draft) -> Draft:
    """Mark the projections that only drop columns."""
    changed: dict[int, Operator] = {}
    for node_id, plan in draft.node_plans.items():
        node = draft.nodes[node_id]
        if isinstance(node.operator, CalcOperator) and node.name == "Project" and plan.top is not None:
            top = plan.top
            if top.name == "Project" and top.children[0].has(top.ids):
                changed[node_id] = replace(node.operator, drops_columns=True)
    return draft.with_operators(changed)
