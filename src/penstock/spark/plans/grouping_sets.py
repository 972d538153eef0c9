"""Pre-aggregation before ROLLUP, CUBE or GROUPING SETS multiplies rows.

Spark plans such an aggregate as partial aggregation above ``ExpandExec``, which copies each row for each grouping set.
Here the rows are first aggregated by all grouping columns. The partial results are then copied for each grouping set,
and merged (``PartialMerge``, as Spark does between the two steps of a distinct aggregate).

A sum over rows with equal values of all grouping columns may overflow although no requested sum does, for instance with
long integers of both signs. So only functions that cannot overflow are supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import EXPRESSIONS, Bridge, class_name, items, with_fields
from penstock.spark.plans.aggregates import merges_in_any_order
from penstock.spark.plans.catalyst import attribute_ids, is_attribute
from penstock.spark.plans.fragment import placeholder
from penstock.spark.plans.planning import spark_plan

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode


def can_pre_aggregate(aggregate: LogicalNode) -> bool:
    """Whether `pre_aggregate` can change the plan of an aggregate over an ``Expand``.

    Plans the aggregate with Spark over an empty leaf, because Spark decides whether to use a hash aggregate.
    """
    (expand,) = aggregate.children
    leaf = placeholder(expand.children[0].output)
    logical = aggregate.with_children([expand.with_children([leaf])])
    bridge = aggregate._bridge
    return pre_aggregate(bridge, spark_plan(bridge.session, logical)) is not None


def grouping_set_columns(aggregate: LogicalNode) -> tuple[int, frozenset[str]] | None:
    """Return the number of grouping sets and the ids of their columns; None if ``Expand`` lacks a grouping column."""
    (expand,) = aggregate.children
    output_ids, groups = expand.ids, attribute_ids(aggregate._handle.groupingExpressions())
    if not set(groups) <= set(output_ids):
        return None
    projections = [items(projection) for projection in items(expand._handle.projections())]
    keys = [projection[output_ids.index(group)] for projection in projections for group in groups]
    columns = attribute_ids(aggregate._bridge.seq(key for key in keys if is_attribute(key)))
    return len(projections), frozenset(columns)


def pre_aggregate(bridge: Bridge, plan: Any) -> Any | None:
    """Return the plan with an aggregate below its ``ExpandExec``; None if a function or the plan's form prevents it."""
    if class_name(plan) != "HashAggregateExec":
        return None
    partial = plan.child()
    if class_name(partial) != "HashAggregateExec" or class_name(partial.child()) != "ExpandExec":
        return None
    changed = _aggregate_before_expand(bridge, partial, partial.child())
    return None if changed is None else plan.withNewChildren(bridge.seq([changed]))


def _aggregate_before_expand(bridge: Bridge, partial: Any, expand: Any) -> Any | None:
    functions = items(partial.aggregateExpressions())
    for function in functions:
        is_partial = class_name(function.mode()) == "Partial" and not function.isDistinct()
        if not is_partial or not merges_in_any_order(bridge, function.aggregateFunction()):
            return None
    output_ids, groups = attribute_ids(expand.output()), attribute_ids(partial.groupingExpressions())
    if not set(groups) <= set(output_ids):
        return None
    projections = [items(projection) for projection in items(expand.projections())]
    keys = [[projection[output_ids.index(group)] for group in groups] for projection in projections]
    if not all(is_attribute(key) or class_name(key) == "Literal" for row in keys for key in row):
        return None
    arguments = {column for function in functions for column in attribute_ids(function.references().toSeq())}
    if not arguments <= set(output_ids) - set(groups):  # some grouping sets replace a group column by null
        return None
    for index in map(output_ids.index, arguments):
        if any(attribute_ids(bridge.seq([projection[index]])) != [output_ids[index]] for projection in projections):
            return None  # some grouping sets replace the column
    finest_groups: dict[str, Any] = {}
    for key in (key for row in keys for key in row if is_attribute(key)):
        finest_groups.setdefault(attribute_ids(bridge.seq([key]))[0], key)
    buffers = [column for f in functions for column in items(f.aggregateFunction().inputAggBufferAttributes())]
    pre_aggregated = with_fields(
        bridge,
        partial,
        groupingExpressions=bridge.seq(finest_groups.values()),
        resultExpressions=bridge.seq([*finest_groups.values(), *buffers]),
        child=expand.child(),
    )
    group_columns = [expand.output().apply(output_ids.index(group)) for group in groups]
    expanded = with_fields(
        bridge,
        expand,
        projections=bridge.seq(bridge.seq([*row, *buffers]) for row in keys),
        output=bridge.seq([*group_columns, *buffers]),
        child=pre_aggregated,
    )
    merge = bridge.companion(EXPRESSIONS + "aggregate.PartialMerge")
    merging = [with_fields(bridge, function, mode=merge, filter=bridge.none) for function in functions]
    merged = with_fields(
        bridge,
        partial,
        aggregateExpressions=bridge.seq(merging),
        initialInputBufferOffset=len(groups),
        child=expanded,
    )
    for created, original in ((pre_aggregated, expand), (expanded, expand), (merged, partial)):
        created.copyTagsFrom(original)  # adaptive execution reads the logical plan of each node from its tags
    return merged
