"""Running a query as Spark runs it, beside the vertices of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.exchange import run_to_rdd
from penstock.spark.fragment import rdd_leaf
from penstock.spark.jobs import active_session
from penstock.spark.limits import split_limits, with_limits

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge


def spark_rows(bridge: Bridge, plan: Any) -> Any:
    """Run an optimised plan in the user's session but for its last stage; return that as a leaf.

    Limits at its end stay on top of the leaf: whoever collects the rows carries them out.
    """
    limits, below = split_limits(plan)
    with active_session(bridge, bridge.session):
        leaf = rdd_leaf(bridge, bridge.session, below.output(), run_to_rdd(bridge, bridge.session, below))
    return with_limits(bridge, limits, leaf)
