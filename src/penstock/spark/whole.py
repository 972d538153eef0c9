"""Running a query as Spark runs it, beside the vertices of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.exchange import run_to_rdd
from penstock.spark.fragment import rdd_leaf
from penstock.spark.jobs import active_session

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge


def spark_rows(bridge: Bridge, plan: Any) -> Any:
    """Run an optimised plan in the user's session but for its last stage; return that as a leaf."""
    with active_session(bridge, bridge.session):
        return rdd_leaf(bridge, bridge.session, plan.output(), run_to_rdd(bridge, bridge.session, plan))
