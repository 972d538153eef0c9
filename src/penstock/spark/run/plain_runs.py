"""Runs of a DataFrame in plain Spark, to compare its rows with those of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, children, class_name, walk
from penstock.spark.bridge.settings import clone_with
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.dataframes import dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan

_LIMITS = {"GlobalLimit", "LocalLimit", "Limit", "Offset", "Tail"}


def in_user_session(bridge: Bridge, df: DataFrame) -> DataFrame:
    """Convert a DataFrame of another session of the application to the user's session."""
    return dataframe(bridge.session, analyzed_plan(bridge, df))


def with_other_partitions(bridge: Bridge, df: DataFrame) -> DataFrame:
    """Return a DataFrame of the same query in `other_session`; rows that depend on numbers of partitions may differ."""
    return dataframe(other_session(bridge), analyzed_plan(bridge, df))


def other_session(bridge: Bridge) -> Session:
    """Return a clone of the user's session whose shuffles have different numbers of partitions."""
    partitions = int(bridge.spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    other = partitions // 2 + 1 if partitions > 9 else partitions + 1
    settings = {"spark.sql.shuffle.partitions": str(other), "spark.sql.adaptive.coalescePartitions.enabled": "false"}
    return clone_with(bridge.session, settings)


def run_without_rows(df: DataFrame) -> None:
    """Run a DataFrame and discard its rows; the sink ``noop`` would reject some types."""
    df._jdf.queryExecution().toRdd().count()


def nondeterminism_reason(df: DataFrame) -> str:
    """Return why a DataFrame's rows may differ between runs, such as ``rand``; empty if no reason is detected."""
    query = df._jdf.queryExecution()
    return _nondeterminism_reason(query.optimizedPlan(), query.analyzed())  # the optimizer merges and moves limits


def plan_nondeterminism_reason(plan: LogicalPlan) -> str:
    """Return why an optimized plan's rows may differ between runs; empty if no reason is detected."""
    return _nondeterminism_reason(plan._handle, plan._handle)


def _nondeterminism_reason(optimized: Any, plan_with_limits: Any) -> str:
    if not optimized.deterministic():
        return "it has an expression that is not deterministic, such as rand, uuid or a function marked as such"
    if any(class_name(node) in _LIMITS and not _has_order(node) for node in walk(plan_with_limits)):
        return "it selects some of its rows without an order (LIMIT or OFFSET without ORDER BY)"
    return ""


def _has_order(limit: Any) -> bool:
    """Whether the rows below a limit are sorted or literal, or there is only a single row."""
    below = limit
    while class_name(below) in {"Project", "SubqueryAlias", *_LIMITS}:
        (below,) = children(below)
    is_single_row = class_name(below) == "Aggregate" and below.groupingExpressions().isEmpty()
    return is_single_row or class_name(below) in {"Sort", "LocalRelation", "OneRowRelation"}
