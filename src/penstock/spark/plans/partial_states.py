"""Merges the partial results (*states*) of hot (very large) groups in chunks, before the final aggregate reads them.

A task reads what some of the upstream tasks wrote to a hot subpartition, merges the partial results of each group
(``PartialMerge``, as Spark does between the two steps of a distinct aggregate), and writes them to the same
subpartition of a second exchange. The final aggregate reads hot subpartitions from the second exchange, and all others
from the first, so the partitioning of its rows is unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from penstock.spark.run.exchange.results import EMPTY, materialize, read_stage, slice_stage, union_by_task
from penstock.spark.run.shuffle_statistics import subpartition_bytes

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode
    from penstock.spark.run.exchange.results import Range, StagedResult

_DISTINCT_VALUE_FUNCTIONS = frozenset({"Percentile", "PercentileDisc"})
"""Functions whose partial results hold each distinct value once, and do not depend on the order of merging.

Other functions are excluded: ``mode`` returns any of several equally frequent values, ``percentile_approx`` depends on
the order, and merging does not shrink the partial results of ``collect_list``.
"""
_SET = "CollectSet"
"""``collect_set``: its partial results hold distinct values, too, but merging determines the order of its array."""
_ORDER_INDEPENDENT_FUNCTIONS = frozenset({"Size", "SortArray", "ArrayContains", "ArrayMin", "ArrayMax"})
"""Array functions whose result does not depend on the order of the array."""


def keeps_distinct_values(aggregate: LogicalNode) -> bool:
    """Whether an aggregate's partial results hold distinct values, and can be merged in any order (since Spark 4.1)."""
    if not aggregate.functions & {_SET, *_DISTINCT_VALUE_FUNCTIONS} or aggregate._bridge.version < (4, 1):
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
        return False  # Spark plans DISTINCT differently; of strings that are equal in a collation, the first remains
    return class_name(function) in {_SET, *_DISTINCT_VALUE_FUNCTIONS} or merges_in_any_order(bridge, function)


def _depends_on_order(expression: Any) -> bool:
    """Whether a result depends on the order of the array that ``collect_set`` returns."""
    if class_name(expression) == "AggregateExpression":
        return class_name(expression.aggregateFunction()) == _SET
    arguments = children(expression)
    if class_name(expression) in _ORDER_INDEPENDENT_FUNCTIONS and class_name(arguments[0]) == "AggregateExpression":
        arguments = arguments[1:]
    return any(map(_depends_on_order, arguments))


@dataclass(frozen=True, slots=True)
class MergedStates:
    """Merged partial results of hot subpartitions: an exchange with the same subpartitions, and its bytes."""

    stage: QueryStage
    bytes: int


def unmergeable_states_reason(result: StagedResult) -> str | None:
    """Return why the partial results of a vertex cannot be merged in chunks, None if they can."""
    final = result.plan._handle
    if class_name(final) != "ObjectHashAggregateExec":
        return "Spark does not merge partial results in a hash table"
    if class_name(final.child()) not in {"ShuffleQueryStageExec", "AQEShuffleReadExec"}:
        return "Spark processes the partial results first"
    functions = items(final.aggregateExpressions())
    if any(class_name(function.mode()) != "Final" or function.isDistinct() for function in functions):
        return "Spark does more than merge the partial results"
    states = [state for f in functions for state in items(f.aggregateFunction().inputAggBufferAttributes())]
    expected_columns = [*items(final.groupingExpressions()), *states]
    if attribute_ids(result.plan._bridge.seq(expected_columns)) != attribute_ids(final.child().output()):
        return "Spark uses different columns for the partial results"
    return None


def merge_states(result: StagedResult, chunks: Mapping[int, Sequence[Range]]) -> MergedStates:
    """Merge the partial results of some subpartitions; `unmergeable_states_reason` must return None for the result.

    `chunks` has ranges of upstream tasks by subpartition; each merging task reads what the tasks of a range wrote.
    """
    bridge, final, stage = result.plan._bridge, result.plan._handle, result.stages[0]._handle
    slices = [(index, mappers) for index, ranges in chunks.items() for mappers in ranges]
    merging = bridge.companion(EXPRESSIONS + "aggregate.PartialMerge")
    functions = items(final.aggregateExpressions())
    buffers = [column for function in functions for column in items(function.aggregateFunction().aggBufferAttributes())]
    merge = with_fields(
        bridge,
        final,
        requiredChildDistributionExpressions=bridge.none,
        aggregateExpressions=bridge.seq(with_fields(bridge, f, mode=merging, filter=bridge.none) for f in functions),
        aggregateAttributes=bridge.seq(buffers),
        initialInputBufferOffset=len(items(final.groupingExpressions())),
        resultExpressions=stage.output(),
        child=slice_stage(bridge, stage, slices),
    )
    merged_stage = materialize(bridge, with_fields(bridge, stage.shuffle(), child=merge))
    return MergedStates(QueryStage(bridge, merged_stage), int(subpartition_bytes(bridge, merged_stage).sum()))


def aggregate_merged(
    session: Session, result: StagedResult, merged: MergedStates, hot: Collection[int], ranges: Sequence[Range]
) -> PhysicalPlan:
    """Return the final aggregate with a task per range; hot subpartitions are read from the merged states."""
    bridge, final, stage = result.plan._bridge, result.plan._handle, result.stages[0]._handle
    hot_ranges = [[(i, i + 1) for i in range(*span) if i in hot] for span in ranges]
    other_ranges = [_without(span, hot) for span in ranges]
    layers = [*_layers(bridge, stage, other_ranges), *_layers(bridge, merged.stage._handle, hot_ranges)]
    rows = union_by_task(layers, len(ranges))
    layout = Partitioning(bridge, read_stage(bridge, stage, ranges).outputPartitioning())
    leaf = rdd_leaf(session, Attributes(bridge, stage.output()), rows, layout=layout)
    return PhysicalPlan(bridge, final.withNewChildren(bridge.seq([spark_plan(session, leaf)])))


def _without(span: Range, hot: Collection[int]) -> list[Range]:
    """Return the parts of a range of subpartitions between the hot subpartitions."""
    start, end = span
    borders = [start - 1, *(i for i in range(start, end) if i in hot), end]
    return [(previous + 1, following) for previous, following in pairwise(borders) if previous + 1 < following]


def _layers(bridge: Bridge, stage: Any, tasks: Sequence[Sequence[Range]]) -> list[InternalRows]:
    """Return the rows of an exchange in layers: the first layer has the rows of each task's first range, and so on."""
    layers = zip_longest(*tasks, fillvalue=EMPTY)
    return [InternalRows(bridge, read_stage(bridge, stage, layer).execute()) for layer in layers]
