"""From an optimised logical plan to a physical one, by Spark's own planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.jvm import EXECUTION

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge


def spark_plan(bridge: Bridge, session: Any, logical: Any) -> Any:
    """Return the physical plan of an optimised one, before exchanges are added (``QueryExecution.createSparkPlan``).

    Spark 4.0 wants the session too; later releases take it from the planner.
    """
    maker = bridge.companion(EXECUTION + "QueryExecution")
    until_4_0 = [session] if bridge.version < (4, 1) else []
    return maker.createSparkPlan(*until_4_0, session.sessionState().planner(), logical)
