"""Looking at every row: whether it lies where a leaf claims, and whether a filter keeps what it must."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.spark import filters
from penstock.spark.exchange import physical_plan
from penstock.spark.jvm import EXPRESSIONS, LOGICAL, PHYSICAL, class_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.filters import KeySet
    from penstock.spark.jvm import Bridge


def checked(bridge: Bridge, rdd: Any, layout: Any, output: Any, who: str) -> Any:
    """Return an ``RDD[InternalRow]`` whose tasks fail at the first row that lies elsewhere than is claimed.

    Parameters
    ----------
    layout
        A ``Partitioning`` that `exchange.layout` or `span_layout` gave.
    output
        The attributes of the rows, in which the layout's keys are spelt.
    who
        Names the vertex and the input in the error.
    """
    return bridge.helper("LayoutCheck", on_executors=True).over(rdd, layout, output, who)


def span_layout(bridge: Bridge, layout: Any, spans: Sequence[tuple[int, int]]) -> Any:
    """Return the layout of tasks that each read some subpartitions of rows that are hashed; None if they are not."""
    if layout is None or class_name(layout) != "HashPartitioning":
        return None
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    boundaries = bridge.seq(boundary(start, end) for start, end in spans)
    return bridge.find(PHYSICAL + "CoalescedHashPartitioning")(layout, boundaries)


def ruled_out(bridge: Bridge, keys: Sequence[Any], found: KeySet) -> Any:
    """Return a condition that no row is to meet whose keys a filter was made of: the filter would rule it out.

    A row with a key that is null meets no other, so it does not count.
    """
    is_not_null, both = bridge.find(EXPRESSIONS + "IsNotNull"), bridge.find(EXPRESSIONS + "And")
    there = reduce(both, map(is_not_null, keys))
    if found.is_empty:
        return there
    kept = [filters.might_contain(bridge, found, keys), *filters.for_sources(bridge, found, keys)]
    return both(there, bridge.find(EXPRESSIONS + "Not")(reduce(both, kept)))


def is_met(bridge: Bridge, session: Any, rows: Any, condition: Any) -> bool:
    """Whether a row of a logical plan meets a condition."""
    met = bridge.find(LOGICAL + "Project")(bridge.seq([]), filters.filtered(bridge, rows, [condition]))
    return not physical_plan(bridge, session, met).execute().isEmpty()
