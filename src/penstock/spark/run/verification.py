"""Verification of rows: whether they are in their declared partitions, and whether a filter drops matching rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from penstock.spark.bridge.handles import InternalRows, Partitioning, PhysicalPlan, Session
from penstock.spark.bridge.jvm import EXPRESSIONS, PHYSICAL, children, class_name
from penstock.spark.plans.expressions import Attributes, Expression
from penstock.spark.run import filters
from penstock.spark.run.exchange import physical_plan
from penstock.spark.run.exchange.results import READ, STAGE

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.run.filters import KeySet


def check_layout(rows: InternalRows, layout: Partitioning, output: Attributes, subject: str) -> InternalRows:
    """Return the rows; a task fails at the first row in a wrong partition of `layout`; the error names `subject`."""
    bridge = rows._bridge
    checked = bridge.helper("LayoutCheck", on_executors=True).over(rows, layout, output, subject)
    return InternalRows(bridge, checked)


def range_layout(layout: Partitioning | None, ranges: Sequence[tuple[int, int]]) -> Partitioning | None:
    """Return the partitioning of rows if each task reads a range of subpartitions; None if the rows are not hashed."""
    if layout is None or class_name(layout._handle) != "HashPartitioning":
        return None
    bridge = layout._bridge
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    boundaries = bridge.seq(boundary(start, end) for start, end in ranges)
    return Partitioning(bridge, bridge.find(PHYSICAL + "CoalescedHashPartitioning")(layout, boundaries))


def dropped_keys_condition(keys: Sequence[Expression], key_set: KeySet) -> Expression:
    """Return a condition that selects the rows that a filter would drop although the filter was built from their keys.

    The condition is false for rows with a null key, as null matches nothing.
    """
    bridge = keys[0]._bridge
    is_not_null, both = bridge.find(EXPRESSIONS + "IsNotNull"), bridge.find(EXPRESSIONS + "And")
    has_no_nulls = reduce(both, map(is_not_null, keys))
    if key_set.is_empty:
        return Expression(bridge, has_no_nulls)
    filter_conditions = [filters.might_contain(key_set, keys), *filters.source_conditions(key_set, keys)]
    return Expression(bridge, both(has_no_nulls, bridge.find(EXPRESSIONS + "Not")(reduce(both, filter_conditions))))


def count_rows(rows: InternalRows) -> int:
    """Count rows by reading all of them, so that `check_layout` checks each."""
    return int(rows._handle.count())


def has_matching_row(session: Session, rows: LogicalPlan, condition: Expression) -> bool:
    """Whether any row of a plan satisfies a condition."""
    matches = rows.filtered_by([condition])
    without_columns = matches.projected(matches.output.take([]))
    return not physical_plan(session, without_columns).rows()._handle.isEmpty()


def count_exchanged_rows(plan: PhysicalPlan) -> int:
    """Count the rows that a plan reads from its only exchange, by reading them."""
    node = plan._handle
    while class_name(node) not in {STAGE, READ, "ColumnsToRows"}:
        (node,) = children(node)
    return count_rows(PhysicalPlan(plan._bridge, node).rows())
