"""Windows that are computed in chunks of ordered rows, and the values carried from chunk to chunk.

The rows are written to a second exchange, range-partitioned by the window's keys and order. So the chunks are ordered,
and rows that are equal in the order are in the same chunk. Spark's own window runs over each chunk. Only the first
group of a chunk may have begun in an earlier chunk. The results of its functions up to there, the carry, are added to
its rows: the number of earlier rows to a rank, their sum to a sum.

The carry is a constant in the plan. If files are lost and repeated tasks return different rows, Spark would not update
it. So the plan below must be repeatable (`conditions.unrepeatable_reason`), and each task verifies the number of rows
of its chunk.

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


def undividable_reason(window: LogicalNode) -> str | None:
    """Return why the rows of a key must be in a single task, None if a window can be computed in chunks."""
    reason = window._bridge.helper("WindowFunctions").indivisibleReason(window)
    return None if reason is None else str(reason)


def undividable_plan_reason(result: StagedResult) -> str | None:
    """Return why Spark's plan of a window cannot be computed in chunks, None if it can."""
    operators, todo = [], [result.above._handle]
    while todo:
        plan = todo.pop()
        if class_name(plan) not in _PASSES_ROWS_ON:
            operators.append(class_name(plan))
        todo += children(plan)
    if tuple(operators) != _SORTED:
        return "Spark does not plan it as a window over sorted rows"
    is_spark_exchange = class_name(result.stages[0]._handle.shuffle()) == "ShuffleExchangeExec"
    return None if is_spark_exchange else "the exchange before it is not Spark's own"


@dataclass(frozen=True, slots=True)
class OrderedChunks:
    """The rows of some subpartitions, split by the order of a window: an exchange with a chunk per subpartition."""

    stage: QueryStage
    sizes: np.ndarray = field(repr=False)


def divide(result: StagedResult, slices: Sequence[tuple[int, Range]], chunks: int) -> OrderedChunks:
    """Split the rows of some subpartitions by the order of their window.

    Parameters
    ----------
    result
        The result of a vertex for a window; see `undividable_plan_reason`.
    slices
        What each task reads: a subpartition, and a range of upstream tasks.
    chunks
        The maximum number of chunks; there are fewer if the order has few distinct values.
    """
    bridge, window, first = result.above._bridge, result.above._handle, result.stages[0]._handle
    split = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    specs = bridge.seq(split(index, start, end, 0) for index, (start, end) in slices)
    read = bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(first, specs)
    ranges = bridge.find(PHYSICAL + "RangePartitioning")(window.requiredChildOrdering().head(), chunks)
    shuffle = with_fields(bridge, first.shuffle(), child=read, outputPartitioning=ranges)
    stage = bridge.find(EXECUTION + "adaptive.ShuffleQueryStageExec")(0, shuffle, shuffle.canonicalized())
    forever = bridge.companion("scala.concurrent.duration.Duration").Inf()
    written = bridge.companion("org.apache.spark.util.ThreadUtils").awaitResult(stage.materialize(), forever)
    stage.resultOption().set(bridge.some(written))
    return OrderedChunks(QueryStage(bridge, stage), subpartition_bytes(bridge, stage))


def windowed(session: Session, result: StagedResult, divided: OrderedChunks, tasks: int) -> InternalRows | None:
    """Return the rows of a window over chunks, with a task for each; further tasks have no rows.

    None if Spark does not aggregate each chunk separately.
    """
    bridge, chunks = session._bridge, len(divided.sizes)
    ranges = [(i, i + 1) for i in range(chunks)] + [(0, 0)] * (tasks - chunks)
    rows = _read(divided.stage, ranges)
    window = PhysicalPlan(bridge, _on_top_of(bridge, result.above._handle, rows._handle))
    ends = _ends(session, window, rows)
    if ends is None:
        return None
    columns = bridge.helper("WindowChunks").continued(window, ends)
    continued = PhysicalPlan(bridge, bridge.find(EXECUTION + "ProjectExec")(columns, window)).rows()
    return InternalRows(bridge, bridge.helper("WindowChunkCheck", on_executors=True).over(continued, ends))


def _ends(session: Session, window: PhysicalPlan, rows: PhysicalPlan) -> Any:
    """Return the totals of the first and the last group of each chunk, and the number of its rows.

    None if Spark would exchange rows for them. The leaf declares a single partition, so that Spark exchanges nothing
    and aggregates each chunk separately; no other plan uses the leaf.
    """
    bridge = session._bridge
    single = Partitioning(bridge, bridge.companion(PHYSICAL + "SinglePartition"))
    leaf = rdd_leaf(session, Attributes(bridge, rows._handle.output()), rows.rows(), layout=single)
    totals = bridge.helper("WindowChunks").totals(window)
    groups = _aggregate(leaf, items(window._handle.partitionSpec()), items(totals))
    *columns, rows_of_group = items(groups._handle.output())
    group = bridge.helper("WindowChunks").structOf(bridge.seq(columns))
    functions = {"Min": group, "Max": group, "Sum": rows_of_group}
    ends = [bridge.find(f"{EXPRESSIONS}aggregate.{name}")(of).toAggregateExpression() for name, of in functions.items()]
    plan = physical_plan(session, _aggregate(groups, [], ends))
    return None if _has_exchange(plan) else plan._handle.executeCollect()


def _aggregate(plan: LogicalPlan, groups: Sequence[Any], results: Sequence[Any]) -> LogicalPlan:
    bridge = plan._bridge
    named, alias = bridge.find(EXPRESSIONS + "NamedExpression"), bridge.find(EXPRESSIONS + "Alias")
    none = bridge.seq([])
    columns = [alias(result, f"c{i}", named.newExprId(), none, bridge.none, none) for i, result in enumerate(results)]
    grouped = bridge.find("org.apache.spark.sql.catalyst.dsl.package$plans$DslLogicalPlan")(plan)
    return LogicalPlan(bridge, grouped.groupBy(bridge.seq(groups), bridge.seq(columns)))


def _read(stage: QueryStage, ranges: Sequence[Range]) -> PhysicalPlan:
    bridge = stage._bridge
    merged = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    specs = bridge.seq(merged.apply(start, end, 0) for start, end in ranges)
    return PhysicalPlan(bridge, bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(stage, specs))


def _on_top_of(bridge: Bridge, plan: Any, rows: Any) -> Any:
    """Return the operators above the stage of a plan on top of other rows with the same columns."""
    if class_name(plan) in {_STAGE, _READ}:
        return rows
    return plan.withNewChildren(bridge.seq(_on_top_of(bridge, child, rows) for child in children(plan)))


def _has_exchange(plan: PhysicalPlan) -> bool:
    todo = [plan._handle.initialPlan() if class_name(plan._handle) == "AdaptiveSparkPlanExec" else plan._handle]
    while todo:
        node = todo.pop()
        if "Exchange" in class_name(node):
            return True
        todo += children(node)
    return False


def concatenate(rows: Sequence[InternalRows]) -> InternalRows:
    """Return an RDD with the tasks of several RDDs, in order."""
    bridge = rows[0]._bridge
    context, kind = bridge.spark.sparkContext._jsc.sc(), rows[0]._handle.elementClassTag()
    return InternalRows(bridge, bridge.find("org.apache.spark.rdd.UnionRDD")(context, bridge.seq(rows), kind))
