"""Runs a query in plain Spark, next to the vertices of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.exchange import run_to_rows
from penstock.spark.fragment import rdd_leaf
from penstock.spark.jobs import active_session
from penstock.spark.limits import split_limits, with_limits

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan


def spark_rows(plan: LogicalPlan, session: Session | None = None) -> LogicalPlan:
    """Run all stages of an optimised plan but the last; return the last as a leaf.

    Limits at the end of the plan stay above the leaf, as Spark applies them while it collects the rows.
    """
    session = plan._bridge.session if session is None else session
    limits, below = split_limits(plan)
    with active_session(session):
        leaf = rdd_leaf(session, below.output, run_to_rows(session, below).rows)
    return with_limits(limits, leaf)
