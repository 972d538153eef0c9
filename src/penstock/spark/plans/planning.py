"""Physical planning of optimized logical plans by Spark's own planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import EXECUTION, EXPRESSIONS, class_name, items, walk

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan


def spark_plan(session: Session, logical: LogicalPlan) -> Any:
    """Return the physical plan of an optimized plan, before exchanges are added (``QueryExecution.createSparkPlan``).

    A copy is planned, as the planner sets tags on its input. Spark 4.0 requires the session as an argument; later
    releases get it from the planner.
    """
    bridge = session._bridge
    executions = bridge.companion(EXECUTION + "QueryExecution")
    session_argument = [session] if bridge.version < (4, 1) else []
    planner = session._handle.sessionState().planner()
    copy = logical._handle.clone()
    bridge.helper("QueryHook").exclude(copy)  # in an enabled session, the planner would delegate it to Penstock
    return executions.createSparkPlan(*session_argument, planner, copy)


def exchange_count(plan: LogicalPlan) -> float:
    """Estimate the number of exchanges that Spark would plan; a broadcast counts as a fraction of an exchange."""
    bridge = plan._bridge
    return float(bridge.helper("ExchangeCount").of(plan._handle, bridge.session))


def scan_of(session: Session, logical: LogicalPlan, scan_class: str) -> Any | None:
    """Return the scan operator of class `scan_class` in Spark's plan of a filtered relation; None if there is none."""
    return next((node for node in walk(spark_plan(session, logical)) if class_name(node) == scan_class), None)


_PARTITION_FILTERS = {"FileSourceScanExec": "partitionFilters", "HiveTableScanExec": "partitionPruningPred"}


def partition_filters(session: Session, logical: LogicalPlan, scan_class: str) -> list[Any]:
    """Return the partition filters of a scan, see `scan_of`, except those with subqueries, which run with the query."""
    scan = scan_of(session, logical, scan_class)
    subqueries = session._bridge.companion(EXPRESSIONS + "SubqueryExpression")
    conditions = [] if scan is None else items(getattr(scan, _PARTITION_FILTERS[scan_class])())
    return [condition for condition in conditions if not subqueries.hasSubquery(condition)]
