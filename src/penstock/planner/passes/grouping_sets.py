"""Adds grouping sets to aggregates over ROLLUP, CUBE or GROUPING SETS that can be pre-aggregated before ``Expand``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator, GroupingSets, JoinInput, Side
from penstock.spark.plans.grouping_sets import can_pre_aggregate, grouping_set_columns

if TYPE_CHECKING:
    from penstock.planner.draft import Draft
    from penstock.spark.plans.nodes import LogicalNode


def add_grouping_sets(draft: Draft) -> None:
    """Add the grouping sets to aggregates whose rows can be pre-aggregated before ``Expand`` copies them."""
    for node_id, plan in draft.nodes.items():
        operator = draft.stream_nodes[node_id].operator
        if isinstance(operator, AggregateOperator) and plan.top is not None:
            sets = grouping_sets(plan.top, draft.node_of)
            if sets is not None:
                draft.update_node(node_id, operator=replace(operator, grouping_sets=sets))


def grouping_sets(aggregate: LogicalNode, node_of: Mapping[LogicalNode, int]) -> GroupingSets | None:
    """Return the grouping sets of an aggregate; None if it has none, or its rows cannot be pre-aggregated."""
    (expand,) = aggregate.children
    if expand.name != "Expand" or expand not in node_of or not can_pre_aggregate(aggregate):
        return None
    copies_and_columns = grouping_set_columns(aggregate)
    if copies_and_columns is None:
        return None
    copies, columns = copies_and_columns
    origins = (_origin(expand.children[0], column, node_of) for column in sorted(columns))
    return GroupingSets(node_of[expand], copies, tuple(origins))


def _origin(node: LogicalNode, column: str, node_of: Mapping[LogicalNode, int]) -> tuple[JoinInput, ...]:
    """Return the join inputs that a column passes through, from the last join to the first."""
    origins = []
    while node.children:
        if node.name == "Join":
            inputs = zip(Side, node.children, strict=True)
            input_side = next(((side, child) for side, child in inputs if child.has_columns([column])), None)
            if input_side is None:
                break
            if node in node_of:
                origins.append(JoinInput(node_of[node], input_side[0]))
            node = input_side[1]
        elif node.name in {"Project", "Aggregate"}:
            input_columns = node.input_columns([column])
            if input_columns is None:  # the column is computed
                break
            (column,) = input_columns
            (node,) = node.children
        elif len(node.children) == 1 and node.children[0].has_columns([column]):
            (node,) = node.children
        else:
            break
    return tuple(origins)
