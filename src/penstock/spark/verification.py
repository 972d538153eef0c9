"""Looking at every row: whether it lies where a leaf claims, and whether a filter keeps what it must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark import filters
from penstock.spark.compiled import new_instance
from penstock.spark.exchange import physical_plan
from penstock.spark.jvm import EXPRESSIONS, LOGICAL, PHYSICAL, class_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.filters import KeySet
    from penstock.spark.jvm import Bridge

_CHECK = "LayoutCheck"


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
    return new_instance(bridge, _CHECK).over(rdd, layout, output, who)


def span_layout(bridge: Bridge, layout: Any, spans: Sequence[tuple[int, int]]) -> Any:
    """Return the layout of tasks that each read some subpartitions of rows that are hashed; None if they are not."""
    if layout is None or class_name(layout) != "HashPartitioning":
        return None
    boundary = bridge.find(PHYSICAL + "CoalescedBoundary")
    boundaries = bridge.seq(boundary(start, end) for start, end in spans)
    return bridge.find(PHYSICAL + "CoalescedHashPartitioning")(layout, boundaries)


def keys_left_out(bridge: Bridge, session: Any, leaf: Any, keys: Sequence[Any], found: KeySet) -> int:
    """Return how many rows of a plan a filter that was made of its keys would rule out; there must be none.

    Rows with a key that is null meet no other, so they do not count.
    """
    is_not_null = bridge.find(EXPRESSIONS + "IsNotNull")
    there = filters.filtered(bridge, leaf, [is_not_null(key) for key in keys])
    if not found.is_empty:
        kept = [filters.might_contain(bridge, found, keys), *filters.for_sources(bridge, found, keys)]
        all_kept = kept[0]
        for part in kept[1:]:
            all_kept = bridge.find(EXPRESSIONS + "And")(all_kept, part)
        there = filters.filtered(bridge, there, [bridge.find(EXPRESSIONS + "Not")(all_kept)])
    nothing = bridge.find(LOGICAL + "Project")(bridge.seq([]), there)
    return int(physical_plan(bridge, session, nothing).execute().count())
