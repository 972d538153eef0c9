"""Merges partial results of hot groups in chunks, before the final aggregate reads them.

A task reads the partial results of a hot subpartition that some of the upstream tasks wrote, merges those of each
group (``PartialMerge``, as Spark does between the two steps of a distinct aggregate), and writes them to the same
subpartition of a second exchange. The final aggregate reads hot subpartitions from the second exchange, and all others
from the first, so the partitioning of its rows is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.handles import InternalRows, Partitioning, PhysicalPlan, QueryStage, Session
from penstock.spark.bridge.jvm import EXPRESSIONS, Bridge, children, class_name, items, with_fields
from penstock.spark.plans.aggregates import aggregate_functions, merges_in_any_order
from penstock.spark.plans.catalyst import attribute_ids
from penstock.spark.plans.expressions import Attributes
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.planning import spark_plan
from penstock.spark.run.exchange.results import NOTHING, materialize, read_split, read_stage, union_by_task
from penstock.spark.run.stage_figures import subpartition_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.spark.plans.nodes import LogicalNode
    from penstock.spark.run.exchange.results import Range, StagedResult

_GROWING = frozenset({"Percentile", "PercentileDisc"})
"""Functions whose partial results hold each distinct value once, and do not depend on the order of merging.

``mode`` returns any of several equally frequent values, and ``percentile_approx`` depends on the order. Merging does
not shrink the partial results of ``collect_list``.
"""
_SET = "CollectSet"
"""Its partial results hold distinct values, too, but the order of its array depends on their order."""
_ORDER_INDEPENDENT = frozenset({"Size", "SortArray", "ArrayContains", "ArrayMin", "ArrayMax"})
"""Array functions whose result does not depend on the order of the array."""


def keeps_distinct_values(aggregate: LogicalNode) -> bool:
    """Whether partial results of an aggregate hold a group's distinct values, and the merge order does not matter."""
    if not aggregate.functions & {_SET, *_GROWING} or aggregate._bridge.version < (4, 1):
        return False
    functions = aggregate_functions(aggregate)
    return (
        functions is not None
        and all(_is_mergeable(function._bridge, function._handle) for function in functions.values())
        and not any(map(_depends_on_order, items(aggregate._handle.aggregateExpressions())))
    )


def _is_mergeable(bridge: Bridge, expression: Any) -> bool:
    function = expression.aggregateFunction()
    if expression.isDistinct() or any("COLLATE" in str(child.dataType().sql()) for child in items(function.children())):
        return False  # the first of several strings that a collation treats as equal would be retained
    return class_name(function) in {_SET, *_GROWING} or merges_in_any_order(bridge, function)


def _depends_on_order(expression: Any) -> bool:
    """Whether a result depends on the order of an array of distinct values."""
    if class_name(expression) == "AggregateExpression":
        return class_name(expression.aggregateFunction()) == _SET
    inner = children(expression)
    if class_name(expression) in _ORDER_INDEPENDENT and class_name(inner[0]) == "AggregateExpression":
        inner = inner[1:]
    return any(map(_depends_on_order, inner))


@dataclass(frozen=True, slots=True)
class MergedStates:
    """Merged partial results of hot subpartitions: a second exchange with the same subpartitions, and its bytes."""

    stage: QueryStage
    bytes: int


def unmergeable_states_reason(result: StagedResult) -> str | None:
    """Return why the partial results of a vertex cannot be merged in chunks, None if they can."""
    final = result.above._handle
    if class_name(final) != "ObjectHashAggregateExec":
        return "Spark does not merge them in a hash table"
    if class_name(final.child()) not in {"ShuffleQueryStageExec", "AQEShuffleReadExec"}:
        return "Spark processes them first"
    functions = items(final.aggregateExpressions())
    if any(class_name(function.mode()) != "Final" or function.isDistinct() for function in functions):
        return "Spark does more than merge them"
    states = [state for f in functions for state in items(f.aggregateFunction().inputAggBufferAttributes())]
    read = [*items(final.groupingExpressions()), *states]
    if attribute_ids(result.above._bridge.seq(read)) != attribute_ids(final.child().output()):
        return "Spark uses different columns for them"
    return None


def merge(result: StagedResult, chunks: Mapping[int, Sequence[Range]]) -> MergedStates:
    """Merge the partial results of some subpartitions, see `unmergeable_states_reason`.

    `chunks` are the ranges of upstream tasks that each task reads, by subpartition.
    """
    bridge, final, stage = result.above._bridge, result.above._handle, result.stages[0]._handle
    slices = [(index, mappers) for index, ranges in chunks.items() for mappers in ranges]
    merging = bridge.companion(EXPRESSIONS + "aggregate.PartialMerge")
    functions = items(final.aggregateExpressions())
    buffers = [column for function in functions for column in items(function.aggregateFunction().aggBufferAttributes())]
    partial = with_fields(
        bridge,
        final,
        requiredChildDistributionExpressions=bridge.none,
        aggregateExpressions=bridge.seq(with_fields(bridge, f, mode=merging, filter=bridge.none) for f in functions),
        aggregateAttributes=bridge.seq(buffers),
        initialInputBufferOffset=len(items(final.groupingExpressions())),
        resultExpressions=stage.output(),
        child=read_split(bridge, stage, slices),
    )
    second = materialize(bridge, with_fields(bridge, stage.shuffle(), child=partial))
    return MergedStates(QueryStage(bridge, second), int(subpartition_bytes(bridge, second).sum()))


def aggregate_merged(
    session: Session, result: StagedResult, merged: MergedStates, hot: Collection[int], ranges: Sequence[Range]
) -> PhysicalPlan:
    """Return the final aggregate of a result for ranges of subpartitions; hot ones are read from the merged states."""
    bridge, final, stage = result.above._bridge, result.above._handle, result.stages[0]._handle
    hot_ranges = [[(i, i + 1) for i in range(*span) if i in hot] for span in ranges]
    others = [_without(span, hot) for span in ranges]
    layers = [*_layers(bridge, stage, others), *_layers(bridge, merged.stage._handle, hot_ranges)]
    rows = union_by_task(layers, len(ranges))
    layout = Partitioning(bridge, read_stage(bridge, stage, ranges).outputPartitioning())
    leaf = rdd_leaf(session, Attributes(bridge, stage.output()), rows, layout=layout)
    return PhysicalPlan(bridge, final.withNewChildren(bridge.seq([spark_plan(session, leaf)])))


def _without(span: Range, hot: Collection[int]) -> list[Range]:
    """Return the parts of a range of subpartitions between the hot subpartitions."""
    start, end = span
    edges = [start - 1, *(i for i in range(start, end) if i in hot), end]
    return [(previous + 1, following) for previous, following in pairwise(edges) if previous + 1 < following]


def _layers(bridge: Bridge, stage: Any, tasks: Sequence[Sequence[Range]]) -> list[InternalRows]:
    """Return the rows of an exchange in layers, where each task reads its ranges in order."""
    layers = zip_longest(*tasks, fillvalue=NOTHING)
    return [InternalRows(bridge, read_stage(bridge, stage, layer).execute()) for layer in layers]
