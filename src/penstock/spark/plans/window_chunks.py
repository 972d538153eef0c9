"""Windows that are computed in chunks of ordered rows, and the values carried from chunk to chunk.

The rows are written to a second exchange, range-partitioned by the window's keys and order. So the chunks are ordered,
and rows with equal keys and order are in the same chunk. Spark's own window runs over each chunk. Only the first group
(rows with equal keys) of a chunk may have begun in earlier chunks. The *carry*, the functions' results over these
earlier rows, is merged into the results of the group's rows in the chunk: a rank grows by the number of earlier rows.

The carry is a constant in the plan, which Spark would not update if files are lost and rerun tasks return different
rows. So the plan below the window must be repeatable (`conditions.unrepeatable_reason`), and each task verifies the
number of rows of its chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.handles import InternalRows, Partitioning, PhysicalPlan, QueryStage, Session
from penstock.spark.bridge.jvm import EXECUTION, EXPRESSIONS, PHYSICAL, class_name, items, walk, with_fields
from penstock.spark.plans.expressions import Attributes, alias
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.run.exchange.results import EMPTY, READ, STAGE, materialize, read_stage, replace_stages, slice_stage
from penstock.spark.run.exchange.writes import physical_plan
from penstock.spark.run.shuffle_statistics import subpartition_bytes

if TYPE_CHECKING:
    import numpy as np

    from penstock.spark.plans.nodes import LogicalNode
    from penstock.spark.run.exchange.results import Range, StagedResult

_SORTED_WINDOW = ["WindowExec", "SortExec", STAGE]
_PASS_THROUGH = frozenset({"WholeStageCodegenExec", "InputAdapter", READ})


def indivisible_reason(window: LogicalNode) -> str | None:
    """Return why the rows of a key must be in a single task, None if a window can be computed in chunks."""
    reason = window._bridge.helper("WindowFunctions").indivisibleReason(window)
    return None if reason is None else str(reason)


def indivisible_plan_reason(result: StagedResult) -> str | None:
    """Return why Spark's plan of a window cannot be computed in chunks, None if it can."""
    operators = [name for name in map(class_name, walk(result.plan._handle)) if name not in _PASS_THROUGH]
    if operators != _SORTED_WINDOW:
        return "Spark's plan is not a window over sorted rows"
    is_spark_exchange = class_name(result.stages[0]._handle.shuffle()) == "ShuffleExchangeExec"
    return None if is_spark_exchange else "the exchange before the window is not Spark's own"


@dataclass(frozen=True, slots=True)
class OrderedChunks:
    """Rows split by the order of a window: an exchange with a chunk per subpartition, and the bytes of each chunk."""

    stage: QueryStage
    sizes: np.ndarray = field(repr=False)


def divide(result: StagedResult, slices: Sequence[tuple[int, Range]], chunks: int) -> OrderedChunks:
    """Split the rows of some subpartitions by the window's order; `indivisible_plan_reason` must return None.

    `slices` are what the tasks read: a subpartition, and a range of upstream tasks. `chunks` is the maximum number of
    chunks; there are fewer if the order has few distinct values.
    """
    bridge, window, input_stage = result.plan._bridge, result.plan._handle, result.stages[0]._handle
    ranges = bridge.find(PHYSICAL + "RangePartitioning")(window.requiredChildOrdering().head(), chunks)
    rows = slice_stage(bridge, input_stage, slices)
    shuffle = with_fields(bridge, input_stage.shuffle(), child=rows, outputPartitioning=ranges)
    stage = materialize(bridge, shuffle)
    return OrderedChunks(QueryStage(bridge, stage), subpartition_bytes(bridge, stage))


def run_window(session: Session, result: StagedResult, divided: OrderedChunks, tasks: int) -> InternalRows | None:
    """Return the rows of a window over chunks, with a task for each chunk; tasks beyond the chunks have no rows.

    None if Spark would exchange rows between chunks to compute the totals that are carried, see `_group_totals`.
    """
    bridge, chunks = session._bridge, len(divided.sizes)
    ranges = [(i, i + 1) for i in range(chunks)] + [EMPTY] * (tasks - chunks)
    rows = PhysicalPlan(bridge, read_stage(bridge, divided.stage, ranges))
    window = PhysicalPlan(bridge, replace_stages(bridge, result.plan._handle, lambda _: rows._handle))
    totals = _group_totals(session, window, rows)
    if totals is None:
        return None
    columns = bridge.helper("WindowChunks").continued(window, totals)
    continued = PhysicalPlan(bridge, bridge.find(EXECUTION + "ProjectExec")(columns, window)).rows()
    return InternalRows(bridge, bridge.helper("WindowChunkCheck", on_executors=True).over(continued, totals))


def _group_totals(session: Session, window: PhysicalPlan, rows: PhysicalPlan) -> Any:
    """Return the totals of the first and the last group of each chunk, and the number of rows of each chunk.

    None if Spark would exchange rows for these totals. The leaf declares a single partition, so that Spark exchanges
    nothing and aggregates each chunk separately; no other plan uses the leaf.
    """
    bridge = session._bridge
    single_partition = Partitioning(bridge, bridge.companion(PHYSICAL + "SinglePartition"))
    leaf = rdd_leaf(session, Attributes(bridge, rows._handle.output()), rows.rows(), layout=single_partition)
    functions = bridge.helper("WindowChunks").totals(window)
    groups = _aggregate(leaf, items(window._handle.partitionSpec()), items(functions))
    *columns, rows_of_group = items(groups._handle.output())
    group = bridge.helper("WindowChunks").structOf(bridge.seq(columns))
    arguments = {"Min": group, "Max": group, "Sum": rows_of_group}  # the first and the last group, and all rows
    ends = [bridge.find(f"{EXPRESSIONS}aggregate.{f}")(arguments[f]).toAggregateExpression() for f in arguments]
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
    context, class_tag = bridge.spark.sparkContext._jsc.sc(), rows[0]._handle.elementClassTag()
    return InternalRows(bridge, bridge.find("org.apache.spark.rdd.UnionRDD")(context, bridge.seq(rows), class_tag))
