"""Limits at the end of a plan, which Spark applies while it collects the rows.

Spark then reads partition by partition until it has enough rows (``CollectLimitExec.executeTake``), and never computes
the others. It does so only if the query *ends* with a limit: once a plan runs as an RDD, all partitions run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail", "GlobalLimitAndOffset"})


def split_limits(plan: LogicalPlan) -> tuple[tuple[LogicalPlan, ...], LogicalPlan]:
    """Return the limits that a plan ends with, the topmost first, and the plan below them.

    Limits above a sort do not count: Spark keeps the first rows of each task there, so all tasks must run.
    """
    limits, below = [], plan
    while below.kind in LIMITS:
        limits.append(below)
        below = _input(below)
    sorted_by = _input(below) if below.kind == "Project" else below
    return ((), plan) if sorted_by.kind == "Sort" else (tuple(limits), below)


def _input(plan: LogicalPlan) -> LogicalPlan:
    return LogicalPlan(plan._bridge, plan._handle.children().head())


def with_limits(limits: Sequence[LogicalPlan], plan: LogicalPlan) -> LogicalPlan:
    """Return a plan with limits on top; the topmost limit is the first."""
    for limit in reversed(limits):
        plan = limit.with_children([plan])
    return plan
