"""Queries for plain Spark: a user's DataFrame, or a query that Spark has optimised already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.spark.dataframes import dataframe
from penstock.spark.plain_runs import (
    nondeterminism_reason,
    other_session,
    plan_nondeterminism_reason,
    with_other_partitions,
)
from penstock.spark.spark_rows import spark_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


class PlainQuery(Protocol):
    """A query that plain Spark runs in the user's session."""

    @property
    def schema(self) -> StructType:
        """Its columns."""

    def rows(self) -> DataFrame:
        """Return its rows; errors are raised here or when the rows are computed."""

    def repartitioned_rows(self) -> DataFrame:
        """Return its rows as computed with other numbers of shuffle partitions."""

    def nondeterminism(self) -> str:
        """Return what makes the query non-deterministic; empty if the plan shows nothing of the kind."""


class PlainDataFrame:
    """A DataFrame of the user."""

    def __init__(self, bridge: Bridge, df: DataFrame) -> None:
        self._bridge = bridge
        self._df = df

    @property
    def schema(self) -> StructType:
        """Its columns."""
        return self._df.schema

    def rows(self) -> DataFrame:
        """Return the DataFrame itself."""
        return self._df

    def repartitioned_rows(self) -> DataFrame:
        """Return the DataFrame in a session with other numbers of shuffle partitions."""
        return with_other_partitions(self._bridge, self._df)

    def nondeterminism(self) -> str:
        """Return what makes the query non-deterministic."""
        return nondeterminism_reason(self._df)


class PlainPlan:
    """An optimised plan with cached data in place, which is not optimised again."""

    def __init__(self, bridge: Bridge, plan: LogicalPlan) -> None:
        self._bridge = bridge
        self._plan = plan

    @property
    def schema(self) -> StructType:
        """Its columns."""
        return dataframe(self._bridge.session, self._plan).schema

    def rows(self) -> DataFrame:
        """Run all stages of the query except the last, and return its rows."""
        return dataframe(self._bridge.session, spark_rows(self._plan))

    def repartitioned_rows(self) -> DataFrame:
        """Return its rows as computed with other numbers of shuffle partitions."""
        session = other_session(self._bridge)
        return dataframe(self._bridge.session, spark_rows(self._plan, session))

    def nondeterminism(self) -> str:
        """Return what makes the query non-deterministic."""
        return plan_nondeterminism_reason(self._plan)
