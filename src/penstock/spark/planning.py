"""Physical planning of optimised logical plans by Spark's own planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.jvm import EXECUTION, EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan


def spark_plan(session: Session, logical: LogicalPlan) -> Any:
    """Return the physical plan of an optimised plan, before exchanges are added (``QueryExecution.createSparkPlan``).

    A copy is planned, as the planner sets tags on its input. Spark 4.0 also requires the session; later releases take
    it from the planner.
    """
    bridge = session._bridge
    executions = bridge.companion(EXECUTION + "QueryExecution")
    until_4_0 = [session] if bridge.version < (4, 1) else []
    planner = session._handle.sessionState().planner()
    copy = logical._handle.clone()
    bridge.helper("QueryHook").exclude(copy)  # in an enabled session, the planner would delegate it to Penstock
    return executions.createSparkPlan(*until_4_0, planner, copy)


def without_subqueries(session: Session, filters: Iterable[Any]) -> list[Any]:
    """Return the filters that can be evaluated before the query runs (``SubqueryExpression.hasSubquery``)."""
    subqueries = session._bridge.companion(EXPRESSIONS + "SubqueryExpression")
    return [condition for condition in filters if not subqueries.hasSubquery(condition)]
