"""Windows that are computed in chunks of ordered rows, and the values carried from chunk to chunk.

The rows are written to a second exchange, range-partitioned by the window's keys and order. So the chunks are ordered,
and rows that are equal in the order are in the same chunk. Spark's own window runs over each chunk. Only the first
group of a chunk may have begun in an earlier chunk. The results of its functions up to there, the carry, are added to
its rows: the number of earlier rows to a rank, their sum to a sum.

The carry is a constant in the plan. If files are lost and repeated tasks return different rows, Spark would not update
it. So the plan below must be repeatable (`conditions.unrepeatable_reason`), and each task verifies the number of rows
of its chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.handles import InternalRows, Partitioning, PhysicalPlan, QueryStage, Session
from penstock.spark.bridge.jvm import EXECUTION, EXPRESSIONS, PHYSICAL, class_name, items, walk, with_fields
from penstock.spark.plans.expressions import Attributes, alias
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.run.exchange.results import NOTHING, READ, STAGE, above, materialize, read_split, read_stage
from penstock.spark.run.exchange.writes import physical_plan
from penstock.spark.run.stage_figures import subpartition_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from penstock.spark.plans.nodes import LogicalNode
    from penstock.spark.run.exchange.results import Range, StagedResult

_SORTED = ["WindowExec", "SortExec", STAGE]
_PASSES_ROWS_ON = frozenset({"WholeStageCodegenExec", "InputAdapter", READ})


def undividable_reason(window: LogicalNode) -> str | None:
    """Return why the rows of a key must be in a single task, None if a window can be computed in chunks."""
    reason = window._bridge.helper("WindowFunctions").indivisibleReason(window)
    return None if reason is None else str(reason)


def undividable_plan_reason(result: StagedResult) -> str | None:
    """Return why Spark's plan of a window cannot be computed in chunks, None if it can."""
    operators = [name for name in map(class_name, walk(result.above._handle)) if name not in _PASSES_ROWS_ON]
    if operators != _SORTED:
        return "Spark does not plan it as a window over sorted rows"
    is_spark_exchange = class_name(result.stages[0]._handle.shuffle()) == "ShuffleExchangeExec"
    return None if is_spark_exchange else "the exchange before it is not Spark's own"


@dataclass(frozen=True, slots=True)
class OrderedChunks:
    """The rows of some subpartitions, split by the order of a window: an exchange with a chunk per subpartition."""

    stage: QueryStage
    sizes: np.ndarray = field(repr=False)


def divide(result: StagedResult, slices: Sequence[tuple[int, Range]], chunks: int) -> OrderedChunks:
    """Split the rows of some subpartitions by the order of their window; see `undividable_plan_reason`.

    `slices` is what each task reads: a subpartition, and a range of upstream tasks. `chunks` is the maximum number of
    chunks; there are fewer if the order has few distinct values.
    """
    bridge, window, first = result.above._bridge, result.above._handle, result.stages[0]._handle
    ranges = bridge.find(PHYSICAL + "RangePartitioning")(window.requiredChildOrdering().head(), chunks)
    shuffle = with_fields(bridge, first.shuffle(), child=read_split(bridge, first, slices), outputPartitioning=ranges)
    stage = materialize(bridge, shuffle)
    return OrderedChunks(QueryStage(bridge, stage), subpartition_bytes(bridge, stage))


def windowed(session: Session, result: StagedResult, divided: OrderedChunks, tasks: int) -> InternalRows | None:
    """Return the rows of a window over chunks, with a task for each; further tasks have no rows.

    None if Spark does not aggregate each chunk separately.
    """
    bridge, chunks = session._bridge, len(divided.sizes)
    ranges = [(i, i + 1) for i in range(chunks)] + [NOTHING] * (tasks - chunks)
    rows = PhysicalPlan(bridge, read_stage(bridge, divided.stage, ranges))
    window = PhysicalPlan(bridge, above(bridge, result.above._handle, lambda _: rows._handle))
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
    initial = plan._handle.initialPlan() if class_name(plan._handle) == "AdaptiveSparkPlanExec" else plan._handle
    has_exchange = any("Exchange" in class_name(node) for node in walk(initial))
    return None if has_exchange else plan._handle.executeCollect()


def _aggregate(plan: LogicalPlan, groups: Sequence[Any], results: Sequence[Any]) -> LogicalPlan:
    bridge = plan._bridge
    columns = [alias(bridge, result, f"c{i}") for i, result in enumerate(results)]
    grouped = bridge.find("org.apache.spark.sql.catalyst.dsl.package$plans$DslLogicalPlan")(plan)
    return LogicalPlan(bridge, grouped.groupBy(bridge.seq(groups), bridge.seq(columns)))


def concatenate(rows: Sequence[InternalRows]) -> InternalRows:
    """Return an RDD with the tasks of several RDDs, in order."""
    bridge = rows[0]._bridge
    context, kind = bridge.spark.sparkContext._jsc.sc(), rows[0]._handle.elementClassTag()
    return InternalRows(bridge, bridge.find("org.apache.spark.rdd.UnionRDD")(context, bridge.seq(rows), kind))
