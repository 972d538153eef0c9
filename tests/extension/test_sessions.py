"""Sessions whose queries are delegated: their settings, related sessions, and resources of the last stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark import RDD
from pyspark.sql import functions as F

import penstock
from penstock.errors import ConfigError
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run import query_hook
from tests.conftest import OFF
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.services import Postgres

pytestmark = pytest.mark.usefixtures("interpreted")

THRESHOLD = "spark.penstock.execution.batch.adaptive.whole-query-threshold"


@pytest.mark.parametrize(
    ("text", "is_delegated"),
    [("0", True), ("1", True), ("1 kb", True), ("0.5gb", False), ("64 mb", False), ("64 MiB", False), ("1g", False)],
)
def test_the_session_threshold_supports_all_size_formats(spark: SparkSession, text: str, *, is_delegated: bool) -> None:
    with penstock.enabled(spark):
        spark.conf.set(THRESHOLD, text)
        try:
            before = len(RECENT)
            assert spark.range(1000).groupBy("id").count().count() == 1000
            assert (len(RECENT) > before) == is_delegated
        finally:
            spark.conf.unset(THRESHOLD)


def test_settings_of_the_first_session_are_not_those_of_others(spark: SparkSession) -> None:
    key = "spark.penstock.execution.batch.adaptive.auto-parallelism.max-parallelism"
    spark.conf.set(key, "4")
    try:
        with penstock.enabled(spark):
            other = spark.newSession()
            before = len(RECENT)
            other.range(10).groupBy("id").count().collect()
            assert len(RECENT) == before
            spark.range(10).groupBy("id").count().collect()
            assert len(RECENT) == before + 1
    finally:
        spark.conf.unset(key)


def test_the_setting_is_restored_after_the_block(spark: SparkSession) -> None:
    session = spark.newSession()
    for before in (None, "false", "true"):
        if before is not None:
            session.conf.set("spark.penstock.enabled", before)
        with penstock.enabled(session):
            assert session.conf.get("spark.penstock.enabled") == "true"
        assert session.conf.get("spark.penstock.enabled", None) == before


def test_a_cached_frame_of_local_rows_does_not_find_itself(spark: SparkSession) -> None:
    config = OFF | {"execution.batch.adaptive.auto-parallelism.max-parallelism": 4}
    with penstock.enabled(spark, config=config):
        for df in (spark.createDataFrame([(1,), (2,)], ["a"]), spark.range(9).groupBy("id").count().localCheckpoint()):
            rows = df.cache()
            try:
                assert rows.count() == rows.count() > 0
            finally:
                rows.unpersist(blocking=True)


def test_dataframes_of_rdds_stay_in_the_users_session(served: SparkSession) -> None:
    """Spark builds a cache in an internal session, whose queries are delegated, too."""
    before = RDD.toDF
    served.range(100).groupBy("id").count().cache().count()
    served.catalog.clearCache()
    assert RDD.toDF is before


def test_a_limit_below_a_sort_is_part_of_the_query(served: SparkSession) -> None:
    grouped = served.range(1000).groupBy((F.col("id") % 300).alias("k")).count().orderBy("k").limit(100)
    df = grouped.orderBy(F.desc("k")).limit(3)
    before = len(RECENT)
    assert [row.k for row in df.collect()] == [99, 98, 97]
    assert len(RECENT) == before + 1
    assert "Exchange" not in df._jdf.queryExecution().executedPlan().toString().partition("Penstock")[0]


def test_a_query_that_cannot_be_inspected_falls_back_to_spark(
    served: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(query_hook, "DelegatedQuery", fail)
    assert served.range(9).groupBy("id").count().count() == 9
    assert "a defect" in caplog.text


def test_the_last_stage_reads_the_snapshot_of_a_database(spark: SparkSession, postgres: Postgres) -> None:
    """The job closes the connection of the snapshot before the last stage runs."""
    postgres.sql("DROP TABLE IF EXISTS served")
    postgres.sql("CREATE TABLE served AS SELECT i AS id, i % 7 AS k FROM generate_series(1, 3000) i")
    postgres.sql("ANALYZE served")
    options = {"url": postgres.url, "dbtable": "served", **postgres.properties}
    df = spark.read.format("jdbc").options(**options).load()
    expected = df.where("k < 5").collect()
    small_tasks = {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "8 kb"}
    with penstock.enabled(spark, config=OFF | small_tasks):
        served_df = spark.read.format("jdbc").options(**options).load().where("k < 5")
        assert_same_rows(served_df.collect(), expected)
        assert served_df.rdd.getNumPartitions() > 1
    job = RECENT[-1]
    assert [decision.reason for decision in job.decisions if decision.chosen == RUN_BY_SPARK] == []


def test_reasons_are_counted(served: SparkSession) -> None:
    assert "planned again by AQE" not in query_hook.query_counts(Bridge(served))


def test_overlapping_blocks_leave_the_session_disabled(spark: SparkSession) -> None:
    """The block that is entered first is left first; queries in the other block still run as jobs."""
    first, second = penstock.enabled(spark, config=OFF), penstock.enabled(spark, config=OFF)

    def jobs() -> int:
        before = len(RECENT)
        assert spark.range(10).groupBy("id").count().count() == 10
        return len(RECENT) - before

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert jobs() > 0
    second.__exit__(None, None, None)
    assert jobs() == 0
    assert spark.conf.get("spark.penstock.enabled", None) is None
    spark.conf.set("spark.penstock.enabled", "true")  # without a service
    try:
        assert jobs() == 0
    finally:
        spark.conf.unset("spark.penstock.enabled")


def test_an_invalid_option_changes_nothing(spark: SparkSession) -> None:
    with pytest.raises(ConfigError), penstock.enabled(spark, config={"no.such.option": 1}):
        pass
    assert spark.conf.get("spark.penstock.enabled", None) is None
