"""Queries that Penstock declines: Spark runs them, and no part of them is delegated."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

import penstock
from penstock.scheduler.job import RECENT
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.run import query_hook
from tests.conftest import OFF
from tests.support.stages import SINGLE_DUCKDB_TASK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")


def observed(spark: SparkSession) -> Any:
    seen = Observation("seen")
    spark.range(10).observe(seen, F.count("*").alias("n")).groupBy().count().collect()
    return seen.get


def streamed(spark: SparkSession) -> Any:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    query = stream.groupBy((F.col("value") % 2).alias("k")).count().writeStream
    running = query.outputMode("complete").format("memory").queryName("streamed").start()
    deadline = time.monotonic() + 30
    while not spark.table("streamed").take(1) and time.monotonic() < deadline:
        running.processAllAvailable()
    running.stop()


def cached_rows(spark: SparkSession) -> Any:
    df = spark.range(100).cache()
    df.count()
    try:
        return df.where("id > 5").collect()
    finally:
        df.unpersist(blocking=True)


def switched_off(spark: SparkSession) -> Any:
    spark.conf.set("spark.penstock.enabled", "false")
    return spark.range(10).groupBy("id").count().collect()


DECLINED: dict[str, tuple[Callable[[SparkSession], Any], str]] = {
    "observed metrics": (observed, "observes metrics"),
    "micro-batches": (streamed, "a micro-batch of a streaming query"),
    "cached rows": (cached_rows, "reads cached rows only, and needs no shuffle"),
    "a limit of scanned rows": (
        lambda spark: spark.range(1000).limit(3).collect(),
        "a limit of rows that need no shuffle",
    ),
}


@pytest.mark.parametrize("case", DECLINED, ids=str)
def test_a_declined_query_is_counted_with_the_reason(served: SparkSession, case: str) -> None:
    run, reason = DECLINED[case]
    bridge = Bridge(served)
    before = query_hook.query_counts(bridge).get(reason, 0)
    run(served)
    assert query_hook.query_counts(bridge).get(reason, 0) > before


@pytest.mark.parametrize(
    "run", [observed, switched_off, lambda spark: spark.sql("SHOW TABLES").collect()], ids=["observe", "off", "command"]
)
def test_no_part_of_a_declined_query_is_delegated(served: SparkSession, run: Callable[[SparkSession], Any]) -> None:
    before = len(RECENT)
    run(served)
    assert len(RECENT) == before


def test_small_queries_are_declined_unless_configured(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(100).write.parquet(str(tmp_path / "t"))
    with penstock.enabled(spark, config={"execution.native": False}) as session:
        before = len(RECENT)
        small = session.read.parquet(str(tmp_path / "t"))
        assert len(small.groupBy("id").count().collect()) == 100
        assert len(RECENT) == before
        with_option = session.read.option("scan.parallelism", "3").parquet(str(tmp_path / "t"))
        assert with_option.groupBy("id").count().count() == 100
        assert penstock.with_parallelism(small.groupBy("id").count(), 3).count() == 100
        session.conf.set("spark.penstock.execution.batch.adaptive.auto-parallelism.max-parallelism", "4")
        try:
            assert small.groupBy("id").count().count() == 100
        finally:
            session.conf.unset("spark.penstock.execution.batch.adaptive.auto-parallelism.max-parallelism")
        assert len(RECENT) == before + 3


# Session settings, and whether DuckDB then computes small queries with two exchanges.
SMALL: dict[str, tuple[dict[str, str], bool]] = {
    "no settings": ({}, True),
    "DuckDB disabled": ({"spark.penstock.execution.native": "false"}, False),
    "verified": ({"spark.penstock.execution.verify": "true"}, True),
    "compared with plain Spark": ({"spark.penstock.execution.shadow": "ROWS"}, True),
}


@pytest.mark.duckdb
@pytest.mark.parametrize("case", SMALL)
def test_small_queries_of_several_exchanges(spark: SparkSession, tmp_path: Path, case: str) -> None:
    settings, by_duckdb = SMALL[case]
    spark.range(1000).selectExpr("id", "id % 10 AS k").write.parquet(str(tmp_path / "t"))

    def query(session: SparkSession) -> DataFrame:
        return session.read.parquet(str(tmp_path / "t")).groupBy("k").count().orderBy("k")

    expected = query(spark).collect()
    with penstock.enabled(spark) as session, with_settings(session, settings):
        before = len(RECENT)
        assert query(session).collect() == expected
        query(session).write.parquet(str(tmp_path / "written"))
        jobs = list(RECENT)[before:]
    assert spark.read.parquet(str(tmp_path / "written")).orderBy("k").collect() == expected
    chosen = [next(str(decision.chosen) for decision in job.decisions) for job in jobs]
    assert chosen == ([SINGLE_DUCKDB_TASK] * 2 if by_duckdb else [])


@pytest.mark.duckdb
def test_small_queries_whose_paths_duckdb_would_expand(spark: SparkSession, tmp_path: Path) -> None:
    """DuckDB would take the path for a pattern, which is detected after the query was delegated."""
    folder = tmp_path / "a[1]"
    spark.range(1000).selectExpr("id", "id % 10 AS k").write.parquet(str(folder))
    with penstock.enabled(spark) as session:
        files = [str(file).replace("[", "\\[").replace("]", "\\]") for file in folder.glob("*.parquet")]
        df = session.read.parquet(*files).groupBy("k").count().orderBy("k")
        before = len(RECENT)
        assert [row["count"] for row in df.collect()] == [100] * 10
        (job,) = list(RECENT)[before:]
    (vertex,) = job.vertices
    assert "Spark's own query" in vertex.vertex.name
    assert any(
        "DuckDB does not compute it: DuckDB would read the path" in decision.reason for decision in job.decisions
    )


def test_after_disable_and_after_the_block_spark_runs_everything(spark: SparkSession) -> None:
    with penstock.enabled(spark, config=OFF):
        later = spark.newSession()
        before = len(RECENT)
        later.range(10).groupBy("id").count().collect()
        assert len(RECENT) == before + 1
        penstock.disable(later)
        later.range(10).groupBy("id").count().collect()
        assert len(RECENT) == before + 1
    for session in (spark, spark.newSession()):
        session.range(10).groupBy("id").count().collect()
    assert len(RECENT) == before + 1


def test_an_environment_of_a_served_session_runs_its_own_jobs(served: SparkSession) -> None:
    env = penstock.Environment(served, progress=False)
    before = len(RECENT)
    assert len(env.collect(served.range(100).groupBy("id").count())) == 100
    assert len(RECENT) == before + 1
