"""Looking at every row: whether it lies where a leaf claims, and whether a filter keeps what it must."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from penstock.spark import filters
from penstock.spark.exchange import physical_plan
from penstock.spark.expressions import Expression
from penstock.spark.handles import InternalRows, Partitioning, PhysicalPlan
from penstock.spark.jvm import EXPRESSIONS, PHYSICAL, children, class_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.expressions import Attributes
    from penstock.spark.filters import KeySet
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan

_EXCHANGED = frozenset({"ShuffleQueryStageExec", "AQEShuffleReadExec", "NativeRows"})
"""Operators that read an exchange."""


def checked(rows: InternalRows, layout: Partitioning, output: Attributes, who: str) -> InternalRows:
    """Return rows whose tasks fail at the first one that lies elsewhere than is claimed.

    Parameters
    ----------
    layout
        What `layouts.layout` or `span_layout` gave.
    output
        The columns of the rows, in which the layout's keys are spelt.
    who
        Names the vertex and the input in the error.
    """
    bridge = rows._bridge
    looked_at = bridge.helper("LayoutCheck", on_executors=True).over(rows, layout, output, who)
    return InternalRows(bridge, looked_at)


def span_layout(layout: Partitioning | None, spans: Sequence[tuple[int, int]]) -> Partitioning | None:
    """Return the layout of tasks that each read some subpartitions of rows that are hashed; None if they are not."""
    if layout is None or class_name(layout._handle) != "HashPartitioning":
        return None
    bridge = layout._bridge
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    boundaries = bridge.seq(boundary(start, end) for start, end in spans)
    return Partitioning(bridge, bridge.find(PHYSICAL + "CoalescedHashPartitioning")(layout, boundaries))


def ruled_out(keys: Sequence[Expression], found: KeySet) -> Expression:
    """Return a condition that no row is to meet whose keys a filter was made of: the filter would rule it out.

    A row with a key that is null meets no other, so it does not count.
    """
    bridge = keys[0]._bridge
    is_not_null, both = bridge.find(EXPRESSIONS + "IsNotNull"), bridge.find(EXPRESSIONS + "And")
    there = reduce(both, map(is_not_null, keys))
    if found.is_empty:
        return Expression(bridge, there)
    kept = [filters.might_contain(found, keys), *filters.for_sources(found, keys)]
    return Expression(bridge, both(there, bridge.find(EXPRESSIONS + "Not")(reduce(both, kept))))


def count(rows: InternalRows) -> int:
    """Read all rows, so that those that are `checked` are looked at; return how many there are."""
    return int(rows._handle.count())


def is_met(session: Session, rows: LogicalPlan, condition: Expression) -> bool:
    """Whether a row of a plan meets a condition."""
    met = rows.filtered_by([condition])
    nothing = met.projected(met.output.take([]))
    return not physical_plan(session, nothing).rows()._handle.isEmpty()


def count_exchanged(plan: PhysicalPlan) -> int:
    """Return how many rows a plan reads of the one exchange below it, by reading them."""
    node = plan._handle
    while class_name(node) not in _EXCHANGED:
        (node,) = children(node)
    return count(PhysicalPlan(plan._bridge, node).rows())
