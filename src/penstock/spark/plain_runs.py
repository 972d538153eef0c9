"""A DataFrame's rows as Spark itself would make them, or as a job has made them, in the user's session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.catalyst import analyzed_plan
from penstock.spark.dataframes import dataframe
from penstock.spark.jvm import children, class_name
from penstock.spark.settings import change_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan

_LIMITS = {"GlobalLimit", "LocalLimit", "Limit", "Offset", "Tail"}
_FEW = 9


def in_users_session(bridge: Bridge, df: DataFrame) -> DataFrame:
    """Return a DataFrame of another session of the same application as one of the user's."""
    return dataframe(bridge.session, analyzed_plan(bridge, df))


def partitioned_otherwise(bridge: Bridge, df: DataFrame) -> DataFrame:
    """Return a DataFrame whose shuffles have other numbers of partitions, in a session of its own.

    An answer that is determined does not depend on them.
    """
    return dataframe(other_session(bridge), analyzed_plan(bridge, df))


def other_session(bridge: Bridge) -> Session:
    """Return a clone of the user's session whose shuffles have other numbers of partitions."""
    session = bridge.session.clone()
    partitions = int(bridge.spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    others = partitions // 2 + 1 if partitions > _FEW else partitions + 1
    settings = {
        "spark.sql.shuffle.partitions": str(others),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    change_settings(session, settings)
    return session


def run_without_rows(df: DataFrame) -> None:
    """Run a DataFrame as it is, and let go of its rows; the sink ``noop`` would refuse some types."""
    df._jdf.queryExecution().toRdd().count()


def why_undetermined(df: DataFrame) -> str:
    """Return what in a plan lets Spark choose its rows, such as ``rand``; empty if nothing is seen."""
    query = df._jdf.queryExecution()
    return _why_undetermined(query.optimizedPlan(), query.analyzed())


def why_plan_undetermined(plan: LogicalPlan) -> str:
    """Return the same of an optimised plan."""
    return _why_undetermined(plan._handle, plan._handle)


def _why_undetermined(optimized: Any, shown: Any) -> str:
    if not optimized.deterministic():
        return "it holds an expression that is not deterministic, such as rand, uuid or a function marked so"
    if any(class_name(node) in _LIMITS and not _has_order(node) for node in _walk(shown)):
        return "it takes a part of rows that have no order (LIMIT or OFFSET without ORDER BY)"
    return ""


def _has_order(limit: Any) -> bool:
    """Whether the rows below a limit have an order; a single one has."""
    below = limit
    while class_name(below) in {"Project", "SubqueryAlias", *_LIMITS}:
        (below,) = children(below)
    is_one_row = class_name(below) == "Aggregate" and below.groupingExpressions().isEmpty()
    return is_one_row or class_name(below) in {"Sort", "LocalRelation", "OneRowRelation"}


def _walk(plan: Any) -> Iterator[Any]:
    yield plan
    for child in children(plan):
        yield from _walk(child)
