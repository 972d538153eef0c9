"""Queries that run on plain Spark: a user's DataFrame, or a query that Spark has optimized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.spark.plans.dataframes import dataframe
from penstock.spark.run.exchange import run_in_plain_spark
from penstock.spark.run.plain_runs import (
    nondeterminism_reason,
    other_session,
    plan_nondeterminism_reason,
    with_other_partitions,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """A query that plain Spark runs in the user's session; errors are raised when its rows are computed."""

    schema: Callable[[], StructType]
    rows: Callable[[], DataFrame]
    repartitioned_rows: Callable[[], DataFrame]
    """Returns a DataFrame with the same rows, whose shuffles have other numbers of partitions."""
    nondeterminism: Callable[[], str]
    """Returns what makes the query non-deterministic; empty if nothing in its plan does."""

    @classmethod
    def of(cls, bridge: Bridge, df: DataFrame) -> PlainQuery:
        """Return the query of a user's DataFrame."""
        repartitioned_rows = partial(with_other_partitions, bridge, df)
        return cls(lambda: df.schema, lambda: df, repartitioned_rows, partial(nondeterminism_reason, df))

    @classmethod
    def of_plan(cls, bridge: Bridge, plan: LogicalPlan) -> PlainQuery:
        """Return a query that runs Spark's optimized plan unchanged; Spark has already substituted cached data."""
        return cls(
            lambda: dataframe(bridge.session, plan).schema,
            lambda: dataframe(bridge.session, run_in_plain_spark(plan)),
            lambda: dataframe(bridge.session, run_in_plain_spark(plan, other_session(bridge))),
            partial(plan_nondeterminism_reason, plan),
        )
