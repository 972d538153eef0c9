"""Broadcasts the rows of plans and results for joins, usually as a hash table by the join keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import UnknownException, convert_exception

from penstock.graph import Side
from penstock.spark.bridge.handles import BroadcastMode, PhysicalPlan, QueryStage, Session
from penstock.spark.bridge.jvm import EXECUTION, EXPRESSIONS, class_name
from penstock.spark.plans.fragment import hinted_join, placeholder
from penstock.spark.plans.planning import spark_plan
from penstock.spark.run.exchange.results import BroadcastResult, StagedResult, read_merged
from penstock.spark.run.exchange.writes import has_no_rerun_tasks, input_tasks, physical_plan, run_stages
from penstock.spark.run.jobs import JobWatch, executor_addresses
from penstock.spark.run.shuffle_statistics import row_count, to_int

if TYPE_CHECKING:
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode

_SIDE_INDEX = {Side.LEFT: 0, Side.RIGHT: 1}


def broadcast_mode(session: Session, join: LogicalNode, build: Side, keys: Sequence[Expression]) -> BroadcastMode:
    """Return the broadcast mode that Spark requires for a side of a join.

    `keys` are the keys of that side, empty for a join without equality conditions. For a join without keys, and for an
    anti join, which may be null-aware, the mode is read from Spark's own plan of the join over two empty leaves.
    """
    bridge = session._bridge
    if keys and class_name(join._handle.joinType()) != "LeftAnti":
        attributes = bridge.find(EXPRESSIONS + "package$AttributeSeq")(join.children[_SIDE_INDEX[build]].output)
        rewritten = bridge.companion(EXECUTION + "joins.HashJoin").rewriteKeyExpr(bridge.seq(keys))
        bound = bridge.companion(EXPRESSIONS + "BindReferences").bindReferences(rewritten, attributes)
        is_null_aware = False
        return BroadcastMode(bridge, bridge.find(EXECUTION + "joins.HashedRelationBroadcastMode")(bound, is_null_aware))
    leaves = [placeholder(child.output) for child in join.children]
    plan = spark_plan(session, hinted_join(join.with_children(leaves), build, "BROADCAST"))
    return BroadcastMode(bridge, plan.requiredChildDistribution().apply(_SIDE_INDEX[build]).mode())


_PlanAndExecutors = tuple[PhysicalPlan, set[str]]
"""A plan whose shuffle stages have run, and the addresses of the executors before that, see `has_no_rerun_tasks`."""


def run_for_broadcast(session: Session, logical: LogicalPlan) -> _PlanAndExecutors:
    """Run all stages of a plan but the last, whose rows `broadcast` collects."""
    executors = executor_addresses(session._bridge)
    return run_stages(physical_plan(session, logical)), executors


def broadcast(run: _PlanAndExecutors, mode: BroadcastMode, watch: JobWatch | None = None) -> BroadcastResult | None:
    """Broadcast the rows of a plan from `run_for_broadcast`; return None if `watch` has cancelled the job."""
    plan, executors = run
    try:
        return _build(mode, plan, executors, watch)
    except Py4JJavaError:
        if watch is None or not watch.has_cancelled:
            raise
        return None


def broadcast_staged(result: StagedResult, mode: BroadcastMode, ranges: Sequence[tuple[int, int]]) -> BroadcastResult:
    """Broadcast a written result, with a task per range if possible; for errors, see `errors.is_out_of_memory`."""
    plan = read_merged(result, ranges) if result.has_readable_ranges else result.plan
    return _build(mode, plan, executor_addresses(mode._bridge), None)


def _build(mode: BroadcastMode, plan: PhysicalPlan, executors: set[str], watch: JobWatch | None) -> BroadcastResult:
    """Broadcast the rows of a plan; `executors` are the earlier addresses of executors, see `has_no_rerun_tasks`."""
    bridge = mode._bridge
    exchange = bridge.find(EXECUTION + "exchange.BroadcastExchangeExec")(mode, plan)
    stage = bridge.find(EXECUTION + "adaptive.BroadcastQueryStageExec")(0, exchange, exchange.canonicalized())
    with nullcontext() if watch is None else watch.monitor_jobs(str(exchange.jobTag())):
        try:
            relation = exchange.executeBroadcast()
        except Py4JJavaError as error:
            raise _unwrap_broadcast_error(error) from None
    stage.resultOption().set(bridge.some(relation))
    statistics, tasks = exchange.runtimeStatistics(), plan.rows().tasks
    rows, memory, data_bytes = row_count(statistics), to_int(statistics.sizeInBytes()), -1
    if rows is not None:  # their bytes are estimated from the first 10 000 rows; -1 if that is impossible
        data_bytes = int(bridge.helper("RelationAggregation").dataBytes(relation.value(), rows, 10_000))
    figures = rows, memory, memory if data_bytes < 0 else data_bytes, tasks, input_tasks(plan, tasks)
    return BroadcastResult(QueryStage(bridge, stage), *figures, plan, has_no_rerun_tasks(bridge, executors))


def _unwrap_broadcast_error(error: Py4JJavaError) -> Exception:
    """Return the error of the broadcast's thread, as AQE raises it, without the ``ExecutionException`` around it."""
    cause = error.java_exception.getCause()
    if class_name(error.java_exception) == "ExecutionException" and cause is not None:
        converted: Exception = convert_exception(cause)
        if not isinstance(converted, UnknownException):
            return converted
    raised: Exception = error
    return raised
