"""Merging partial results of hot groups in pieces, before the aggregate reads them.

A task reads what some of the tasks before the exchange wrote of a hot subpartition, merges the partial results of each
group (``PartialMerge``, as Spark does between the two steps of a distinct aggregate), and writes them into the same
subpartition of a second exchange. The aggregate then reads hot subpartitions from the second exchange, all others
from the first one. So its rows lie as they would have.

Uses (Spark 4.1 to 4.3): ``ObjectHashAggregateExec``, ``ShuffleExchangeExec``, ``ShuffleQueryStageExec``,
``AQEShuffleReadExec``, ``PartialReducerPartitionSpec``, ``SQLPartitioningAwareUnionRDD``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from penstock.spark.aggregates import functions_of, merges_in_any_order
from penstock.spark.catalyst import attribute_ids
from penstock.spark.expressions import Attributes
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import InternalRows, Partitioning, PhysicalPlan, QueryStage
from penstock.spark.jvm import EXECUTION, EXPRESSIONS, children, class_name, items, with_fields
from penstock.spark.planning import spark_plan
from penstock.spark.stage_figures import subpartition_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.spark.exchange import StagedResult
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

Range = tuple[int, int]

_GROWING = frozenset({"Percentile", "PercentileDisc"})
"""Functions whose partial results hold each distinct value once, and give the same in whatever order they are merged.

``mode`` gives any of several values that are as frequent, and ``percentile_approx`` depends on the order. The partial
results of ``collect_list`` are as large when they are merged.
"""
_SET = "CollectSet"
"""Its partial results do too, but the order of its array depends on theirs."""
_WITHOUT_ORDER = frozenset({"Size", "SortArray", "ArrayContains", "ArrayMin", "ArrayMax"})
"""What comes to the same in whatever order an array is."""


def keeps_distinct_values(aggregate: LogicalNode) -> bool:
    """Whether partial results of an aggregate hold the distinct values of a group, and can be merged in any order."""
    if not aggregate.functions & {_SET, *_GROWING} or aggregate._bridge.version < (4, 1):
        return False
    functions = functions_of(aggregate)
    return (
        functions is not None
        and all(_can_be_merged(one._bridge, one._handle) for one in functions.values())
        and not any(map(_shows_order, items(aggregate._handle.aggregateExpressions())))
    )


def _can_be_merged(bridge: Bridge, expression: Any) -> bool:
    function = expression.aggregateFunction()
    if expression.isDistinct() or any("COLLATE" in str(one.dataType().sql()) for one in items(function.children())):
        return False  # of texts that a collation takes for equal, the first one would be kept
    return class_name(function) in {_SET, *_GROWING} or merges_in_any_order(bridge, function)


def _shows_order(expression: Any) -> bool:
    """Whether a result depends on the order of an array of distinct values."""
    if class_name(expression) == "AggregateExpression":
        return class_name(expression.aggregateFunction()) == _SET
    inner = children(expression)
    if class_name(expression) in _WITHOUT_ORDER and class_name(inner[0]) == "AggregateExpression":
        inner = inner[1:]
    return any(map(_shows_order, inner))


@dataclass(frozen=True, slots=True)
class MergedStates:
    """Partial results of hot subpartitions that were merged in pieces.

    Parameters
    ----------
    stage
        The second exchange; its subpartitions are those of the first.
    bytes
        What was written to it.
    """

    stage: QueryStage
    bytes: int


def why_not_merged(result: StagedResult) -> str | None:
    """Return why the partial results that a vertex has written cannot be merged in pieces, None if they can."""
    final = result.above._handle
    if class_name(final) != "ObjectHashAggregateExec":
        return "Spark does not merge them in a hash table"
    if class_name(final.child()) not in {"ShuffleQueryStageExec", "AQEShuffleReadExec"}:
        return "Spark does something else to them first"
    functions = items(final.aggregateExpressions())
    if any(class_name(one.mode()) != "Final" or one.isDistinct() for one in functions):
        return "Spark does more than to merge them"
    states = [state for one in functions for state in items(one.aggregateFunction().inputAggBufferAttributes())]
    read = [*items(final.groupingExpressions()), *states]
    if attribute_ids(result.above._bridge.seq(read)) != attribute_ids(final.child().output()):
        return "Spark has other columns for them"
    return None


def merge(result: StagedResult, pieces: Mapping[int, Sequence[Range]]) -> MergedStates:
    """Merge the partial results of some subpartitions: a task for each range of upstream tasks.

    Parameters
    ----------
    result
        What a vertex has written for an aggregate; see `why_not_merged`.
    pieces
        The ranges, by subpartition.
    """
    bridge, final, stage = result.above._bridge, result.above._handle, result.stages[0]._handle
    split = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    specs = [split(index, first, last, 0) for index, ranges in pieces.items() for first, last in ranges]
    merging = bridge.companion(EXPRESSIONS + "aggregate.PartialMerge")
    functions = items(final.aggregateExpressions())
    buffers = [one for function in functions for one in items(function.aggregateFunction().aggBufferAttributes())]
    partial = with_fields(
        bridge,
        final,
        requiredChildDistributionExpressions=bridge.none,
        aggregateExpressions=bridge.seq(with_fields(bridge, f, mode=merging, filter=bridge.none) for f in functions),
        aggregateAttributes=bridge.seq(buffers),
        initialInputBufferOffset=len(items(final.groupingExpressions())),
        resultExpressions=stage.output(),
        child=_read(bridge, stage, specs),
    )
    exchange = with_fields(bridge, stage.shuffle(), child=partial)
    second = bridge.find(EXECUTION + "adaptive.ShuffleQueryStageExec")(0, exchange, exchange.canonicalized())
    forever = bridge.companion("scala.concurrent.duration.Duration").Inf()
    written = bridge.companion("org.apache.spark.util.ThreadUtils").awaitResult(second.materialize(), forever)
    second.resultOption().set(bridge.some(written))
    return MergedStates(QueryStage(bridge, second), int(subpartition_bytes(bridge, second).sum()))


def aggregated(
    session: Session, result: StagedResult, merged: MergedStates, hot: Collection[int], ranges: Sequence[Range]
) -> PhysicalPlan:
    """Return the aggregate over a result of which the hot subpartitions are read as they were merged.

    Parameters
    ----------
    session
        The session.
    result, merged, hot
        What a vertex has written, and which subpartitions of it were merged.
    ranges
        The subpartitions that each task reads.
    """
    bridge, final, stage = result.above._bridge, result.above._handle, result.stages[0]._handle
    there = [[(i, i + 1) for i in range(*span) if i in hot] for span in ranges]
    others = [_without(span, hot) for span in ranges]
    layers = [*_layers(bridge, stage, others), *_layers(bridge, merged.stage._handle, there)]
    union = bridge.find("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    context, kind = bridge.spark.sparkContext._jsc.sc(), layers[0].elementClassTag()
    rows = InternalRows(bridge, union(context, bridge.seq(layers), len(ranges), kind))
    layout = Partitioning(bridge, _read(bridge, stage, _merged(bridge, ranges)).outputPartitioning())
    leaf = rdd_leaf(session, Attributes(bridge, stage.output()), rows, layout=layout)
    return PhysicalPlan(bridge, final.withNewChildren(bridge.seq([spark_plan(session, leaf)])))


def _without(span: Range, hot: Collection[int]) -> list[Range]:
    """Return the parts of a range of subpartitions that lie between hot ones."""
    start, end = span
    edges = [start - 1, *(i for i in range(start, end) if i in hot), end]
    return [(one + 1, following) for one, following in pairwise(edges) if one + 1 < following]


def _layers(bridge: Bridge, stage: Any, tasks: Sequence[Sequence[Range]]) -> list[Any]:
    """Return the rows of an exchange, so that each task reads its ranges one after the other."""
    return [_read(bridge, stage, _merged(bridge, layer)).execute() for layer in zip_longest(*tasks, fillvalue=_NOTHING)]


_NOTHING: Range = (0, 0)


def _merged(bridge: Bridge, ranges: Iterable[Range]) -> list[Any]:
    spec = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    return [spec.apply(start, end, 0) for start, end in ranges]


def _read(bridge: Bridge, stage: Any, specs: Iterable[Any]) -> Any:
    return bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(stage, bridge.seq(specs))
