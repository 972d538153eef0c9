"""Runs the plans of vertices: all of their stages, or all but the last."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.spark.bridge.handles import InternalRows, PhysicalPlan, QueryStage, Session, Statistics
from penstock.spark.bridge.jvm import EXECUTION, Bridge, class_name, walk
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.grouping_sets import pre_aggregate
from penstock.spark.plans.limits import split_limits, with_limits
from penstock.spark.plans.planning import spark_plan
from penstock.spark.run.exchange.results import STAGE, StagedResult
from penstock.spark.run.jobs import active_session, executors_of, has_repeated_tasks
from penstock.spark.run.stage_figures import mapper_bytes, row_count, stage_statistics, subpartition_bytes, to_int

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.run.stage_rewriter import StageRewriter


def physical_plan(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: StageRewriter | None = None
) -> PhysicalPlan:
    """Return the adaptive physical plan of an *optimised* logical plan, with the settings of a session.

    The plan is not optimised again: that costs more than planning, and parts of an optimised plan are optimal. The
    session must be the active session of this thread, see `jobs.vertex_thread`. `pre_aggregated` says whether an
    aggregate over grouping sets aggregates before its rows are multiplied. `native` lets a native engine compute parts
    of the plan; None for Spark alone.
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
        # Unlike `query.executedPlan`, this ignores cached data: a query that is being cached would wait for itself.
        executions = bridge.companion(EXECUTION + "QueryExecution")
        adaptive = executions.prepareForExecution(executions.preparations(session, bridge.none, False), plan)
    return PhysicalPlan(bridge, adaptive)


def write(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: StageRewriter | None = None
) -> StagedResult:
    """Run the shuffle stages of a plan, but not the operators above. Spark computes the parts of a failed engine."""
    bridge, executors = session._bridge, executors_of(session._bridge)
    plan = partial(physical_plan, session, logical, pre_aggregated=pre_aggregated, native=native)
    try:
        with nullcontext() if native is None else native.fail_fast(bridge):
            above = run_stages(plan())
    except Exception as error:
        if native is None or not native.handle_failure(bridge, error):
            raise
        above = run_stages(plan())
    if native is not None:
        if native.declines_last_stage(above):
            above = run_stages(plan())
        native.report_rows(bridge)
    stages = [node for node in walk(above._handle) if class_name(node) == STAGE]
    if not stages:
        return StagedResult(above, (), np.zeros((1, 1), dtype=np.int64))
    measured = [subpartition_bytes(bridge, stage) for stage in stages]
    sizes = measured[0] if len(stages) == 1 else np.array([sum(int(part.sum()) for part in measured)], dtype=np.int64)
    statistics = [stage_statistics(bridge, above, stage, native) for stage in stages]
    rows = [row_count(s) for s in statistics]
    return StagedResult(
        above,
        tuple(QueryStage(bridge, stage) for stage in stages),
        sizes.reshape(1, -1),
        rows=None if None in rows else sum(filter(None, rows)),
        size_in_bytes=sum(to_int(s.sizeInBytes()) for s in statistics),
        is_counted_once=is_counted_once(bridge, executors),
        tasks=sum(int(stage.shuffle().numMappers()) for stage in stages),
        input_tasks=sum(
            input_tasks(PhysicalPlan(bridge, stage.shuffle().child()), int(stage.shuffle().numMappers()))
            for stage in stages
        ),
        statistics=Statistics(bridge, statistics[0]) if len(stages) == 1 else None,
        mapper_bytes=partial(mapper_bytes, bridge, stages[0]) if len(stages) == 1 else None,
    )


def is_counted_once(bridge: Bridge, executors: set[str]) -> bool:
    """Whether no task was repeated since the time when there were some executors."""
    return executors <= executors_of(bridge) or not has_repeated_tasks(bridge)


def run_stages(plan: PhysicalPlan) -> PhysicalPlan:
    """Run the stages of a plan; return the final plan, whose last operators have not run."""
    is_adaptive = class_name(plan._handle) == "AdaptiveSparkPlanExec"
    return PhysicalPlan(plan._bridge, plan._handle.finalPhysicalPlan()) if is_adaptive else plan


@dataclass(frozen=True, slots=True)
class LastStage:
    """The last stage of a plan, which has not run, and the number of tasks that read the inputs of the plan."""

    rows: InternalRows
    input_tasks: int


def run_to_rows(session: Session, logical: LogicalPlan) -> LastStage:
    """Run all stages of a plan but the last; return the last."""
    plan = physical_plan(session, logical)
    rows = plan.rows()
    return LastStage(rows, input_tasks(run_stages(plan), rows.tasks))


def spark_rows(plan: LogicalPlan, session: Session | None = None) -> LogicalPlan:
    """Run all stages of an optimised plan but the last in plain Spark; return the last as a leaf.

    Limits at the end of the plan stay above the leaf, as Spark applies them while it collects the rows.
    """
    session = plan._bridge.session if session is None else session
    limits, below = split_limits(plan)
    with active_session(session):
        leaf = rdd_leaf(session, below.output, run_to_rows(session, below).rows)
    return with_limits(limits, leaf)


def input_tasks(plan: PhysicalPlan, tasks: int) -> int:
    """Return the number of tasks that read the inputs of a plan whose last stage has a number of tasks."""
    return int(plan._bridge.helper("ScanMetrics").tasks(plan, tasks))
