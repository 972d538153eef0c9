"""Runs the plans of vertices: their shuffle stages, or all stages but the last."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.spark.bridge.handles import InternalRows, PhysicalPlan, QueryStage, Session, Statistics
from penstock.spark.bridge.jvm import EXECUTION, Bridge, class_name, items
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.grouping_sets import pre_aggregate
from penstock.spark.plans.logical_plan import LogicalPlan, split_limits, with_limits
from penstock.spark.plans.planning import spark_plan
from penstock.spark.run.exchange.results import STAGE, StagedResult
from penstock.spark.run.jobs import active_session, executor_addresses, has_rerun_tasks
from penstock.spark.run.shuffle_statistics import row_count, stage_statistics, subpartition_bytes, to_int

if TYPE_CHECKING:
    from penstock.spark.run.stage_rewriter import StageRewriter


def physical_plan(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: StageRewriter | None = None
) -> PhysicalPlan:
    """Return the physical plan of an *optimized* logical plan, adaptive if possible, with the settings of a session.

    The plan is not optimized again: its parts are optimized already, and optimizing takes longer than planning.
    The session must be the active session of this thread, see `jobs.vertex_thread`. `pre_aggregated` says whether an
    aggregate over grouping sets aggregates rows before it copies them for each set. `native` replaces parts of the plan
    by operators of a native engine; None for Spark alone.
    """
    bridge = session._bridge
    logical._handle.setAnalyzed()
    query = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, logical).queryExecution()
    plan = spark_plan(session, logical)
    if pre_aggregated:
        plan = pre_aggregate(bridge, plan) or plan
    if native is not None:
        plan = native.rewrite(session, PhysicalPlan(bridge, plan))._handle
    context = bridge.find(EXECUTION + "adaptive.AdaptiveExecutionContext")(session, query)
    adaptive = bridge.find(EXECUTION + "adaptive.InsertAdaptiveSparkPlan")(context).apply(plan)
    if class_name(adaptive) != "AdaptiveSparkPlanExec":
        # Unlike `query.executedPlan`, this uses no cached data: a query that is being cached would wait for itself.
        executions = bridge.companion(EXECUTION + "QueryExecution")
        adaptive = executions.prepareForExecution(executions.preparations(session, bridge.none, False), plan)
    return PhysicalPlan(bridge, adaptive)


def write(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: StageRewriter | None = None
) -> StagedResult:
    """Run the shuffle stages of a plan, but nothing above them; if the native engine fails, Spark runs the stages."""
    bridge, executors = session._bridge, executor_addresses(session._bridge)
    create_plan = partial(physical_plan, session, logical, pre_aggregated=pre_aggregated, native=native)
    try:
        with nullcontext() if native is None else native.fail_fast(bridge):
            final_plan = run_stages(create_plan())
    except Exception as error:
        if native is None or not native.handle_failure(bridge, error):
            raise
        final_plan = run_stages(create_plan())  # after a failure, `native` replaces nothing
    if native is not None:
        # A native operator in the last stage would run later, without a fallback: run a new plan with Spark alone.
        if native.disable_for_last_stage(final_plan):
            final_plan = run_stages(create_plan())
        native.report_rows(bridge)
    stages = [leaf for leaf in items(final_plan._handle.collectLeaves()) if class_name(leaf) == STAGE]
    if not stages:
        return StagedResult(final_plan, (), np.zeros((1, 1), dtype=np.int64))
    measured = [subpartition_bytes(bridge, stage) for stage in stages]
    sizes = measured[0] if len(stages) == 1 else np.array([sum(int(part.sum()) for part in measured)], dtype=np.int64)
    statistics = [stage_statistics(bridge, final_plan, stage, native) for stage in stages]
    rows = [row_count(s) for s in statistics]
    return StagedResult(
        final_plan,
        tuple(QueryStage(bridge, stage) for stage in stages),
        sizes.reshape(1, -1),
        rows=None if None in rows else sum(filter(None, rows)),
        size_in_bytes=sum(to_int(s.sizeInBytes()) for s in statistics),
        is_counted_once=has_no_rerun_tasks(bridge, executors),
        tasks=sum(int(stage.shuffle().numMappers()) for stage in stages),
        input_tasks=sum(
            input_tasks(PhysicalPlan(bridge, stage.shuffle().child()), int(stage.shuffle().numMappers()))
            for stage in stages
        ),
        statistics=Statistics(bridge, statistics[0]) if len(stages) == 1 else None,
    )


def has_no_rerun_tasks(bridge: Bridge, executors: set[str]) -> bool:
    """Whether no task of this thread's jobs was rerun; `executors` are the executors' addresses before the jobs."""
    # Successful tasks are rerun mainly after the loss of an executor. Only then are the many tasks checked.
    return executors <= executor_addresses(bridge) or not has_rerun_tasks(bridge)


def run_stages(plan: PhysicalPlan) -> PhysicalPlan:
    """Run the shuffle stages of a plan; return the final plan, whose operators above the stages have not run."""
    is_adaptive = class_name(plan._handle) == "AdaptiveSparkPlanExec"
    return PhysicalPlan(plan._bridge, plan._handle.finalPhysicalPlan()) if is_adaptive else plan


def run_to_last_stage(session: Session, logical: LogicalPlan) -> tuple[InternalRows, int]:
    """Run all stages of a plan but the last; return its rows, and how many tasks read the inputs of the plan."""
    plan = physical_plan(session, logical)
    rows = plan.rows()
    return rows, input_tasks(run_stages(plan), rows.tasks)


def run_in_plain_spark(plan: LogicalPlan, session: Session | None = None) -> LogicalPlan:
    """Run all stages of an optimized plan but the last in plain Spark; return a plan with the last stage as a leaf.

    Limits at the end of the plan remain above the leaf, as Spark applies them while it collects the rows.
    """
    session = plan._bridge.session if session is None else session
    limits, below = split_limits(plan)
    with active_session(session):
        rows, _ = run_to_last_stage(session, below)
        leaf = rdd_leaf(session, below.output, rows)
    return with_limits(limits, leaf)


def input_tasks(plan: PhysicalPlan, tasks: int) -> int:
    """Return the number of tasks that read the inputs of a plan whose last stage has `tasks` tasks."""
    return int(plan._bridge.helper("ScanMetrics").tasks(plan, tasks))
