"""Windows over rows that are divided by their order, and what is carried from piece to piece.

The rows are written into a second exchange, by ranges of the window's keys and order. So each piece comes after the
one before it, and rows with an equal place in the order are in one piece. Spark's own window runs over each piece. Only
the first group of a piece may have begun before it. What its functions gave up to there, the carry, is added to its
rows: the number of the group's rows to a rank, its sum to a sum.

The carry is part of the plan. If files are lost, and rows made again come out otherwise, Spark would not compute it
again. So nothing below may do so (`conditions.why_otherwise_again`), and each task counts the rows of its piece.

Uses (Spark 4.0 to 4.3): ``WindowExec``, ``ShuffleExchangeExec`` with ``RangePartitioning``, ``ShuffleQueryStageExec``,
``AQEShuffleReadExec``, ``PartialReducerPartitionSpec``, ``UnionRDD``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.exchange import physical_plan
from penstock.spark.expressions import Attributes
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import InternalRows, Partitioning, PhysicalPlan, QueryStage
from penstock.spark.jvm import EXECUTION, EXPRESSIONS, PHYSICAL, children, class_name, items, with_fields
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.stage_figures import subpartition_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from penstock.spark.exchange import StagedResult
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

Range = tuple[int, int]

_STAGE = "ShuffleQueryStageExec"
_SORTED = ("WindowExec", "SortExec", _STAGE)
_READ = "AQEShuffleReadExec"
_PASSES_ROWS_ON = frozenset({"WholeStageCodegenExec", "InputAdapter", _READ})


def why_together(window: LogicalNode) -> str | None:
    """Return why the rows of a key must be in one task, None if a window can be computed in pieces."""
    found = window._bridge.helper("WindowFunctions").whyTogether(window)
    return None if found is None else str(found)


def why_not_divided(result: StagedResult) -> str | None:
    """Return why the window that a vertex has written for cannot be computed in pieces, None if it can."""
    found, todo = [], [result.above._handle]
    while todo:
        plan = todo.pop()
        if class_name(plan) not in _PASSES_ROWS_ON:
            found.append(class_name(plan))
        todo += children(plan)
    if tuple(found) != _SORTED:
        return "Spark does not plan it as a window over sorted rows"
    own = class_name(result.stages[0]._handle.shuffle()) == "ShuffleExchangeExec"
    return None if own else "the exchange before it is not Spark's own"


@dataclass(frozen=True, slots=True)
class OrderedPieces:
    """The rows of some subpartitions, divided by the order of a window.

    Parameters
    ----------
    stage
        The second exchange; each of its subpartitions is a piece.
    sizes
        The bytes of each piece.
    """

    stage: QueryStage
    sizes: np.ndarray = field(repr=False)


def divide(result: StagedResult, slices: Sequence[tuple[int, Range]], pieces: int) -> OrderedPieces:
    """Divide the rows of some subpartitions by the order of the window that they were written for.

    Parameters
    ----------
    result
        What a vertex has written for a window; see `why_not_divided`.
    slices
        What each task reads: a subpartition, and the range of upstream tasks.
    pieces
        The most pieces; there are fewer if few rows differ in the order.
    """
    bridge, window, first = result.above._bridge, result.above._handle, result.stages[0]._handle
    split = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    specs = bridge.seq(split(index, start, end, 0) for index, (start, end) in slices)
    read = bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(first, specs)
    ranges = bridge.find(PHYSICAL + "RangePartitioning")(window.requiredChildOrdering().head(), pieces)
    shuffle = with_fields(bridge, first.shuffle(), child=read, outputPartitioning=ranges)
    stage = bridge.find(EXECUTION + "adaptive.ShuffleQueryStageExec")(0, shuffle, shuffle.canonicalized())
    forever = bridge.companion("scala.concurrent.duration.Duration").Inf()
    written = bridge.companion("org.apache.spark.util.ThreadUtils").awaitResult(stage.materialize(), forever)
    stage.resultOption().set(bridge.some(written))
    return OrderedPieces(QueryStage(bridge, stage), subpartition_bytes(bridge, stage))


def windowed(session: Session, result: StagedResult, divided: OrderedPieces, tasks: int) -> InternalRows | None:
    """Return the rows of a window over pieces, a task for each; tasks beyond have no rows.

    None if Spark does not sum up each piece by itself.
    """
    bridge, pieces = session._bridge, len(divided.sizes)
    ranges = [(i, i + 1) for i in range(pieces)] + [(0, 0)] * (tasks - pieces)
    rows = _read(divided.stage, ranges)
    window = PhysicalPlan(bridge, _on_top_of(bridge, result.above._handle, rows._handle))
    ends = _ends(session, window, rows)
    if ends is None:
        return None
    columns = bridge.helper("WindowPieces").continued(window, ends)
    continued = PhysicalPlan(bridge, bridge.find(EXECUTION + "ProjectExec")(columns, window)).rows()
    return InternalRows(bridge, bridge.helper("PieceCount", on_executors=True).over(continued, ends))


def _ends(session: Session, window: PhysicalPlan, rows: PhysicalPlan) -> Any:
    """Return the totals of the first and of the last group of each piece, and its rows.

    None if Spark exchanges rows for them.

    The leaf claims to have one partition, so that Spark exchanges nothing: the rows of each piece are summed up by
    themselves. The claim ends with this plan.
    """
    bridge = session._bridge
    alone = Partitioning(bridge, bridge.companion(PHYSICAL + "SinglePartition"))
    leaf = rdd_leaf(session, Attributes(bridge, rows._handle.output()), rows.rows(), layout=alone)
    totals = bridge.helper("WindowPieces").totals(window)
    groups = _aggregate(leaf, items(window._handle.partitionSpec()), items(totals))
    *columns, rows_of_group = items(groups._handle.output())
    group = bridge.helper("WindowPieces").structOf(bridge.seq(columns))
    wanted = {"Min": group, "Max": group, "Sum": rows_of_group}
    ends = [bridge.find(f"{EXPRESSIONS}aggregate.{name}")(of).toAggregateExpression() for name, of in wanted.items()]
    plan = physical_plan(session, _aggregate(groups, [], ends))
    return None if _moves_rows(plan) else plan._handle.executeCollect()


def _aggregate(plan: LogicalPlan, groups: Sequence[Any], results: Sequence[Any]) -> LogicalPlan:
    bridge = plan._bridge
    named, alias = bridge.find(EXPRESSIONS + "NamedExpression"), bridge.find(EXPRESSIONS + "Alias")
    none = bridge.seq([])
    columns = [alias(one, f"c{i}", named.newExprId(), none, bridge.none, none) for i, one in enumerate(results)]
    grouped = bridge.find("org.apache.spark.sql.catalyst.dsl.package$plans$DslLogicalPlan")(plan)
    return LogicalPlan(bridge, grouped.groupBy(bridge.seq(groups), bridge.seq(columns)))


def _read(stage: QueryStage, ranges: Sequence[Range]) -> PhysicalPlan:
    """Return the plan that reads a stage with one task per range of subpartitions."""
    bridge = stage._bridge
    merged = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    specs = bridge.seq(merged.apply(start, end, 0) for start, end in ranges)
    return PhysicalPlan(bridge, bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(stage, specs))


def _on_top_of(bridge: Bridge, plan: Any, rows: Any) -> Any:
    """Return what is above the stage of a plan of one input, on top of other rows of the same columns."""
    if class_name(plan) in {_STAGE, _READ}:
        return rows
    return plan.withNewChildren(bridge.seq(_on_top_of(bridge, child, rows) for child in children(plan)))


def _moves_rows(plan: PhysicalPlan) -> bool:
    """Whether rows go from task to task in a plan that has not run."""
    todo = [plan._handle.initialPlan() if class_name(plan._handle) == "AdaptiveSparkPlanExec" else plan._handle]
    while todo:
        one = todo.pop()
        if "Exchange" in class_name(one):
            return True
        todo += children(one)
    return False


def one_after_the_other(rows: Sequence[InternalRows]) -> InternalRows:
    """Return the tasks of several rows, one after the other."""
    bridge = rows[0]._bridge
    context, kind = bridge.spark.sparkContext._jsc.sc(), rows[0]._handle.elementClassTag()
    return InternalRows(bridge, bridge.find("org.apache.spark.rdd.UnionRDD")(context, bridge.seq(rows), kind))
