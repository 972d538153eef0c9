"""Where the columns come from that ROLLUP, CUBE and GROUPING SETS group by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.optimizer.early_aggregation import GroupingSets
from penstock.optimizer.joins import SIDES
from penstock.spark.catalyst import attribute_ids, is_attribute
from penstock.spark.grouping_sets import can_aggregate_first
from penstock.spark.jvm import items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


def grouping_sets(bridge: Bridge, aggregate: LogicalNode, node_of: Mapping[LogicalNode, int]) -> GroupingSets | None:
    """Return what multiplies the rows before an aggregate, None if nothing does or it cannot be made before that."""
    (expand,) = aggregate.children
    if expand.name != "Expand" or expand not in node_of or not can_aggregate_first(bridge, aggregate):
        return None
    there, groups = expand.ids, attribute_ids(aggregate.handle.groupingExpressions())
    if not set(groups) <= set(there):
        return None
    projections = [items(projection) for projection in items(expand.handle.projections())]
    grouped = {
        attribute_ids(bridge.seq([key]))[0]
        for projection in projections
        for key in (projection[there.index(group)] for group in groups)
        if is_attribute(key)
    }
    origins = (_origin(expand.children[0], one, node_of) for one in sorted(grouped))
    return GroupingSets(node_of[expand], len(projections), tuple(origins))


def _origin(node: LogicalNode, column: str, node_of: Mapping[LogicalNode, int]) -> tuple[tuple[int, str], ...]:
    """Return the joins and their sides that a column comes through, from the last to the first."""
    found = []
    while node.children:
        if node.name == "Join":
            side = next((i for i, child in enumerate(node.children) if child.has([column])), None)
            if side is None:
                break
            if node in node_of:
                found.append((node_of[node], SIDES[side]))
            node = node.children[side]
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
