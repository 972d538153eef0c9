"""Tables that are bucketed by a query's keys: Spark runs the query, as it needs no shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.scheduler.job import RECENT
from penstock.spark.plans.dataframes import with_settings
from tests.extension.row_level import row_level  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.extension.row_level import RowLevelTables

pytestmark = pytest.mark.usefixtures("interpreted")
TABLES = ("bucketed_by_k", "bucketed_too")
SMALL = "execution.batch.adaptive.whole-query-threshold"
NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}

DECLINED = {
    "a join": "SELECT * FROM bucketed_by_k a JOIN bucketed_too b ON a.k = b.k",
    "a join on more": "SELECT * FROM bucketed_by_k a JOIN bucketed_too b ON a.k = b.k AND a.v = b.v",
    "below a filter": "SELECT a.k FROM (SELECT k FROM bucketed_by_k WHERE v > 3) a LEFT JOIN bucketed_too b ON a.k = b.k",
    "a single side": "SELECT * FROM bucketed_by_k a JOIN others b ON a.k = b.k",
    "groups": "SELECT k, sum(v) FROM bucketed_by_k GROUP BY k",
    "more groups": "SELECT v, k, count(*) FROM bucketed_by_k GROUP BY v, k",
    "a window": "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY v) FROM bucketed_by_k",
    "a subquery": "SELECT v FROM others WHERE v IN (SELECT sum(v) FROM bucketed_by_k GROUP BY k) GROUP BY v",
}
DELEGATED = {
    "another key": "SELECT * FROM bucketed_by_k a JOIN bucketed_too b ON a.v = b.v",
    "other groups": "SELECT v, count(k) FROM bucketed_by_k GROUP BY v",
    "a computed key": "SELECT k + 1 AS k, count(*) FROM bucketed_by_k GROUP BY k + 1",
    "no buckets": "SELECT * FROM others a JOIN others b ON a.k = b.k",
    "a column that is not read": "SELECT count(*) FROM bucketed_by_k GROUP BY v",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[SparkSession]:
    """Two tables in four buckets of k, and a table without buckets."""
    rows = spark.range(400).selectExpr("id % 40 AS k", "id % 7 AS v")
    for name in TABLES:
        rows.write.bucketBy(4, "k").sortBy("k").mode("overwrite").saveAsTable(name)
    rows.write.mode("overwrite").saveAsTable("others")
    with with_settings(spark, NO_BROADCAST), penstock.enabled(spark, config={SMALL: "1b"}):
        yield spark
    for name in (*TABLES, "others"):
        spark.sql(f"DROP TABLE {name}")


def rows_of(session: SparkSession, text: str) -> Any:
    return sorted(map(str, session.sql(text).collect()))


def plain(session: SparkSession, text: str) -> Any:
    with with_settings(session, {"spark.penstock.enabled": "false"}):
        return rows_of(session, text)


@pytest.mark.parametrize("case", DECLINED, ids=str)
def test_spark_runs_queries_without_a_shuffle(tables: SparkSession, case: str) -> None:
    assert rows_of(tables, DECLINED[case]) == plain(tables, DECLINED[case])
    assert not RECENT


@pytest.mark.parametrize("case", DELEGATED, ids=str)
def test_other_queries_of_these_tables_are_delegated(tables: SparkSession, case: str) -> None:
    assert rows_of(tables, DELEGATED[case]) == plain(tables, DELEGATED[case])
    assert len(RECENT) == 1


def test_queries_are_delegated_if_spark_ignores_the_buckets(tables: SparkSession) -> None:
    with with_settings(tables, {"spark.sql.sources.bucketing.enabled": "false"}):
        assert rows_of(tables, DECLINED["a join"]) == plain(tables, DECLINED["a join"])
    assert len(RECENT) == 1
    with with_settings(tables, {"spark.sql.autoBroadcastJoinThreshold": "1mb"}):  # then a side is broadcast
        assert rows_of(tables, DECLINED["a join"]) == plain(tables, DECLINED["a join"])
    assert len(RECENT) == 2


def test_a_query_with_a_plan_hint_is_delegated(tables: SparkSession) -> None:
    joined = penstock.with_parallelism(tables.sql(DECLINED["a join"]), 3)
    assert joined.count() == 40 * 10 * 10
    assert len(RECENT) == 1


@pytest.mark.thorough
def test_an_environment_runs_them_with_spark_too(tables: SparkSession) -> None:
    env = penstock.Environment(tables, config={SMALL: "1b"}, progress=False)
    for text in DECLINED.values():
        df = tables.sql(text)
        assert "its tables are bucketed by its keys" in str(env.explain(df))
        assert sorted(map(str, env.collect(df))) == plain(tables, text)
        assert not env.last_job.vertices
    assert env.collect(tables.sql(DELEGATED["another key"]))
    assert env.last_job.vertices


@pytest.mark.thorough
def test_tables_that_report_their_partitioning(
    tables: SparkSession,
    row_level: RowLevelTables,  # noqa: F811
) -> None:
    for name in ("reports_k", "reports_k_too"):
        tables.sql(f"CREATE TABLE rows.{name} (id BIGINT NOT NULL, k BIGINT, v BIGINT) PARTITIONED BY (k)")
        tables.range(40).selectExpr("id", "id % 4 AS k", "id * 10 AS v").writeTo(f"rows.{name}").append()
    RECENT.clear()
    text = "SELECT a.id, b.v FROM rows.reports_k a JOIN rows.reports_k_too b ON a.{0} = b.{0}"
    with with_settings(tables, {"spark.sql.sources.v2.bucketing.enabled": "true"}):
        assert rows_of(tables, text.format("k")) == plain(tables, text.format("k"))
        assert "Exchange" not in _plan(tables, text.format("k"))  # Spark needs none
        assert not RECENT
        assert rows_of(tables, text.format("id")) == plain(tables, text.format("id"))
        assert len(RECENT) == 1
    with with_settings(tables, {"spark.sql.sources.v2.bucketing.enabled": "false"}):
        assert rows_of(tables, text.format("k")) == plain(tables, text.format("k"))
        assert len(RECENT) == 2


def _plan(session: SparkSession, text: str) -> str:
    with with_settings(session, {"spark.penstock.enabled": "false"}):
        return str(session.sql(text)._jdf.queryExecution().executedPlan().toString())
