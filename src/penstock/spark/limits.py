"""Limits at the end of a plan, which whoever collects the rows carries out.

Spark takes partitions one by one there until it has enough rows (``CollectLimitExec.executeTake``), and never computes
the others. It does so only for a query that *ends* with a limit: once a plan runs as an RDD, all partitions run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.jvm import class_name

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail", "GlobalLimitAndOffset"})


def split_limits(plan: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the limits that a plan ends with, the highest first, and what is below them.

    There are none above a sort: Spark keeps the first rows of each task there, so all tasks have to run.
    """
    limits, below = [], plan
    while class_name(below) in LIMITS:
        limits.append(below)
        below = below.children().head()
    sorted_by = below.children().head() if class_name(below) == "Project" else below
    return ((), plan) if class_name(sorted_by) == "Sort" else (tuple(limits), below)


def with_limits(bridge: Bridge, limits: tuple[Any, ...], plan: Any) -> Any:
    """Return a plan that ends with limits, given the highest first."""
    for limit in reversed(limits):
        plan = limit.withNewChildren(bridge.seq([plan]))
    return plan
