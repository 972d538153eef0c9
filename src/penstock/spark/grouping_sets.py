"""Aggregating before ROLLUP, CUBE or GROUPING SETS multiplies rows.

Spark plans such an aggregate as partial sums over ``ExpandExec``, which makes a copy of each row for each grouping set.
Here partial results are made of the rows themselves first, by all grouped columns together; those are multiplied, and
merged by each set (``PartialMerge``, as Spark does between the two steps of a distinct aggregate).

A sum of the finest groups must not overflow where that of a requested set does not, as it does of long integers of
both signs. So only functions take part of which that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.aggregates import merges_in_any_order
from penstock.spark.catalyst import attribute_ids, is_attribute
from penstock.spark.fragment import placeholder
from penstock.spark.jvm import EXPRESSIONS, class_name, items, with_fields
from penstock.spark.planning import spark_plan

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


def can_aggregate_first(aggregate: LogicalNode) -> bool:
    """Whether `aggregated_first` can change the plan of an aggregate over an ``Expand``.

    It is asked of Spark's own plan over a leaf: which functions it would hash, and how, are its own rules.
    """
    (expand,) = aggregate.children
    below = placeholder(expand.children[0].output)
    logical = aggregate.with_children([expand.with_children([below])])
    bridge = aggregate._bridge
    return aggregated_first(bridge, spark_plan(bridge.session, logical)) is not None


def columns_of_sets(aggregate: LogicalNode) -> tuple[int, frozenset[str]] | None:
    """Return how many grouping sets an aggregate over an ``Expand`` has, and the columns that they are made of.

    None where it groups by what the ``Expand`` does not give.
    """
    (expand,) = aggregate.children
    there, groups = expand.ids, attribute_ids(aggregate._handle.groupingExpressions())
    if not set(groups) <= set(there):
        return None
    projections = [items(projection) for projection in items(expand._handle.projections())]
    keys = [projection[there.index(group)] for projection in projections for group in groups]
    columns = attribute_ids(aggregate._bridge.seq(key for key in keys if is_attribute(key)))
    return len(projections), frozenset(columns)


def aggregated_first(bridge: Bridge, plan: Any) -> Any | None:
    """Return a physical plan whose partial aggregate over an ``ExpandExec`` is made before it too, or None.

    It cannot be where the functions read what is multiplied, or where Spark would not hash.
    """
    if class_name(plan) != "HashAggregateExec":
        return None
    partial = plan.child()
    if class_name(partial) != "HashAggregateExec" or class_name(partial.child()) != "ExpandExec":
        return None
    changed = _first(bridge, partial, partial.child())
    if changed is None:
        return None
    return plan.withNewChildren(bridge.seq([changed]))


def _can_be_made_early(bridge: Bridge, expression: Any) -> bool:
    if class_name(expression.mode()) != "Partial" or expression.isDistinct():
        return False
    return merges_in_any_order(bridge, expression.aggregateFunction())


def _first(bridge: Bridge, partial: Any, expand: Any) -> Any | None:
    functions = items(partial.aggregateExpressions())
    if not all(_can_be_made_early(bridge, function) for function in functions):
        return None
    there, groups = attribute_ids(expand.output()), attribute_ids(partial.groupingExpressions())
    if not set(groups) <= set(there):
        return None
    projections = [items(projection) for projection in items(expand.projections())]
    keys = [[projection[there.index(group)] for group in groups] for projection in projections]
    if not all(is_attribute(key) or class_name(key) == "Literal" for row in keys for key in row):
        return None
    read = {one for function in functions for one in attribute_ids(function.references().toSeq())}
    if not read <= set(there) - set(groups):
        return None
    for place in map(there.index, read):
        if any(attribute_ids(bridge.seq([projection[place]])) != [there[place]] for projection in projections):
            return None  # a column of that name that some copies lack
    finest: dict[str, Any] = {}
    for key in (key for row in keys for key in row if is_attribute(key)):
        finest.setdefault(attribute_ids(bridge.seq([key]))[0], key)
    buffers = [one for function in functions for one in items(function.aggregateFunction().inputAggBufferAttributes())]
    first = with_fields(
        bridge,
        partial,
        groupingExpressions=bridge.seq(finest.values()),
        resultExpressions=bridge.seq([*finest.values(), *buffers]),
        child=expand.child(),
    )
    columns = [expand.output().apply(there.index(group)) for group in groups]
    multiplied = with_fields(
        bridge,
        expand,
        projections=bridge.seq(bridge.seq([*row, *buffers]) for row in keys),
        output=bridge.seq([*columns, *buffers]),
        child=first,
    )
    merge = bridge.companion(EXPRESSIONS + "aggregate.PartialMerge")
    merging = [with_fields(bridge, function, mode=merge, filter=bridge.none) for function in functions]
    merged = with_fields(
        bridge,
        partial,
        aggregateExpressions=bridge.seq(merging),
        initialInputBufferOffset=len(groups),
        child=multiplied,
    )
    for made, old in ((first, expand), (multiplied, expand), (merged, partial)):
        made.copyTagsFrom(old)  # adaptive execution wants to know the logical plan of each
    return merged
