"""Broadcasts the rows of plans and results as hashed relations."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import UnknownException, convert_exception

from penstock.graph import Side
from penstock.spark.bridge.handles import BroadcastMode, PhysicalPlan, QueryStage, Session
from penstock.spark.bridge.jvm import EXECUTION, EXPRESSIONS, class_name
from penstock.spark.plans.fragment import broadcast_join, placeholder
from penstock.spark.plans.planning import spark_plan
from penstock.spark.run.exchange.results import BroadcastResult, StagedResult, read_merged
from penstock.spark.run.exchange.writes import input_tasks, is_counted_once, physical_plan, run_stages
from penstock.spark.run.jobs import executors_of
from penstock.spark.run.stage_figures import row_count, to_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode
    from penstock.spark.run.job_watch import JobWatch

_SIDE_INDEX = {Side.LEFT: 0, Side.RIGHT: 1}


def broadcast_mode(session: Session, join: LogicalNode, build: Side, keys: Sequence[Expression]) -> BroadcastMode:
    """Return the broadcast mode that Spark requires for a side of a join.

    `keys` are the keys of that side, empty for a join without equal keys. The mode of such a join, and that of an anti
    join, which may be null-aware, is read from Spark's own plan of the join over two leaves.
    """
    bridge = session._bridge
    if keys and class_name(join._handle.joinType()) != "LeftAnti":
        attributes = bridge.find(EXPRESSIONS + "package$AttributeSeq")(join.children[_SIDE_INDEX[build]].output)
        rewritten = bridge.companion(EXECUTION + "joins.HashJoin").rewriteKeyExpr(bridge.seq(keys))
        bound = bridge.companion(EXPRESSIONS + "BindReferences").bindReferences(rewritten, attributes)
        return BroadcastMode(bridge, bridge.find(EXECUTION + "joins.HashedRelationBroadcastMode")(bound, False))
    leaves = [placeholder(child.output) for child in join.children]
    plan = spark_plan(session, broadcast_join(join.with_children(leaves), build))
    return BroadcastMode(bridge, plan.requiredChildDistribution().apply(_SIDE_INDEX[build]).mode())


_Rows = tuple[PhysicalPlan, set[str]]
"""A plan whose shuffle stages have run, and the executors that were alive before they ran."""


def run_all_but_last_stage(session: Session, logical: LogicalPlan) -> _Rows:
    """Run all stages of a plan but the last."""
    executors = executors_of(session._bridge)
    return run_stages(physical_plan(session, logical)), executors


def broadcast(rows: _Rows, mode: BroadcastMode, watch: JobWatch | None = None) -> BroadcastResult | None:
    """Broadcast rows as a relation, monitored by a watch; None if the watch has stopped the job."""
    try:
        return _relation(mode, *rows, watch)
    except Py4JJavaError:
        if watch is None or not watch.has_stopped:
            raise
        return None


def broadcast_staged(result: StagedResult, mode: BroadcastMode, ranges: Sequence[tuple[int, int]]) -> BroadcastResult:
    """Broadcast a materialized result, read by a task per range of subpartitions; see `errors.is_out_of_memory`."""
    rows = read_merged(result, ranges) if result.has_readable_ranges else result.above
    return _relation(mode, rows, executors_of(mode._bridge), None)


def _relation(mode: BroadcastMode, rows: PhysicalPlan, executors: set[str], watch: JobWatch | None) -> BroadcastResult:
    bridge = mode._bridge
    exchange = bridge.find(EXECUTION + "exchange.BroadcastExchangeExec")(mode, rows)
    stage = bridge.find(EXECUTION + "adaptive.BroadcastQueryStageExec")(0, exchange, exchange.canonicalized())
    with nullcontext() if watch is None else watch.over(str(exchange.jobTag())):
        try:
            relation = exchange.executeBroadcast()
        except Py4JJavaError as error:
            raise _unwrap_broadcast_error(error) from None
    stage.resultOption().set(bridge.some(relation))
    statistics, tasks = exchange.runtimeStatistics(), rows.rows().tasks
    count, memory, data_bytes = row_count(statistics), to_int(statistics.sizeInBytes()), -1
    if count is not None:  # the bytes of the rows are estimated from a sample
        data_bytes = int(bridge.helper("RelationAggregation").dataBytes(relation.value(), count, 10_000))
    figures = count, memory, memory if data_bytes < 0 else data_bytes, tasks, input_tasks(rows, tasks)
    return BroadcastResult(QueryStage(bridge, stage), *figures, rows, is_counted_once(bridge, executors))


def _unwrap_broadcast_error(error: Py4JJavaError) -> Exception:
    """Return the error of the broadcast thread, as Spark's adaptive execution raises it, not that of the wait."""
    cause = error.java_exception.getCause()
    if class_name(error.java_exception) == "ExecutionException" and cause is not None:
        converted: Exception = convert_exception(cause)
        if not isinstance(converted, UnknownException):
            return converted
    raised: Exception = error
    return raised
