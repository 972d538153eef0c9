"""Tells aggregates what multiplies their rows, and where the columns of ROLLUP, CUBE and GROUPING SETS come from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator, GroupingSets, JoinInput, Side
from penstock.spark.grouping_sets import can_aggregate_first, columns_of_sets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph import Operator
    from penstock.planner.draft import Draft
    from penstock.spark.plans import LogicalNode


def add_grouping_sets(draft: Draft) -> Draft:
    """Tell aggregates that can be made before their rows are multiplied."""
    changed: dict[int, Operator] = {}
    for node_id, plan in draft.node_plans.items():
        operator = draft.nodes[node_id].operator
        if isinstance(operator, AggregateOperator) and plan.top is not None:
            found = grouping_sets(plan.top, draft.node_of)
            if found is not None:
                changed[node_id] = replace(operator, grouping_sets=found)
    return draft.with_operators(changed)


def grouping_sets(aggregate: LogicalNode, node_of: Mapping[LogicalNode, int]) -> GroupingSets | None:
    """Return what multiplies the rows before an aggregate, None if nothing does or it cannot be made before that."""
    (expand,) = aggregate.children
    if expand.name != "Expand" or expand not in node_of or not can_aggregate_first(aggregate):
        return None
    sets = columns_of_sets(aggregate)
    if sets is None:
        return None
    number, columns = sets
    origins = (_origin(expand.children[0], one, node_of) for one in sorted(columns))
    return GroupingSets(node_of[expand], number, tuple(origins))


def _origin(node: LogicalNode, column: str, node_of: Mapping[LogicalNode, int]) -> tuple[JoinInput, ...]:
    """Return the join inputs that a column comes through, from the last join to the first."""
    found = []
    while node.children:
        if node.name == "Join":
            inputs = zip(Side, node.children, strict=True)
            below = next(((side, child) for side, child in inputs if child.has([column])), None)
            if below is None:
                break
            if node in node_of:
                found.append(JoinInput(node_of[node], below[0]))
            node = below[1]
        elif node.name in {"Project", "Aggregate"}:
            moved = node.below([column])
            if moved is None:  # it is computed
                break
            (column,) = moved
            (node,) = node.children
        elif len(node.children) == 1 and node.children[0].has([column]):
            (node,) = node.children
        else:
            break
    return tuple(found)
