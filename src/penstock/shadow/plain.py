"""What plain Spark is to compute beside a job: a user's DataFrame, or a query that Spark has optimised already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.spark.dataframes import dataframe
from penstock.spark.plain_runs import other_session, partitioned_otherwise, why_plan_undetermined, why_undetermined
from penstock.spark.whole import spark_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


class PlainQuery(Protocol):
    """A query as plain Spark runs it, in the user's session."""

    @property
    def schema(self) -> StructType:
        """Its columns."""

    def rows(self) -> DataFrame:
        """Return its rows. What fails may fail here already, or when they are computed."""

    def rows_otherwise(self) -> DataFrame:
        """Return its rows as Spark computes them with other numbers of shuffle partitions."""

    def why_undetermined(self) -> str:
        """Return what in it lets Spark choose its rows; empty if nothing does as far as the plan shows."""


class PlainDataFrame:
    """A DataFrame of the user's."""

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

    def rows_otherwise(self) -> DataFrame:
        """Return the same in a session with other numbers of shuffle partitions."""
        return partitioned_otherwise(self._bridge, self._df)

    def why_undetermined(self) -> str:
        """Return what lets Spark choose its rows."""
        return why_undetermined(self._df)


class PlainPlan:
    """An optimised query, with cached data in place. It is planned as it is: its parts are optimal already."""

    def __init__(self, bridge: Bridge, plan: LogicalPlan) -> None:
        self._bridge = bridge
        self._plan = plan

    @property
    def schema(self) -> StructType:
        """Its columns."""
        return dataframe(self._bridge.session, self._plan).schema

    def rows(self) -> DataFrame:
        """Run the query but for its last stage, and return its rows."""
        return dataframe(self._bridge.session, spark_rows(self._plan))

    def rows_otherwise(self) -> DataFrame:
        """Return its rows as computed with other numbers of shuffle partitions."""
        session = other_session(self._bridge)
        return dataframe(self._bridge.session, spark_rows(self._plan, session))

    def why_undetermined(self) -> str:
        """Return what lets Spark choose its rows."""
        return why_plan_undetermined(self._plan)
