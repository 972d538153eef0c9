"""Every action and every kind of write returns the rows of plain Spark, and runs as a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F

import penstock
from penstock.events import ExecutionState
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from tests.conftest import OFF
from tests.support.equality import are_equal, assert_same_rows, comparable_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.scheduler.job import Job

pytestmark = pytest.mark.usefixtures("interpreted")


def grouped(spark: SparkSession) -> DataFrame:
    """Return seven rows after a shuffle."""
    numbers = spark.range(700).select((F.col("id") % 7).alias("k"), F.col("id").alias("v"))
    return numbers.groupBy("k").agg(F.sum("v").alias("v"), F.count("*").alias("n"))


def ordered(spark: SparkSession) -> DataFrame:
    return grouped(spark).orderBy(F.desc("v"))


def collected_by_tasks(df: DataFrame, each_row: bool) -> int:
    count = df.sparkSession.sparkContext.accumulator(0)
    if each_row:
        df.foreach(lambda _: count.add(1))
    else:
        df.foreachPartition(lambda rows: count.add(sum(1 for _ in rows)))
    return count.value


def cached(df: DataFrame) -> list[Any]:
    df.cache()
    try:
        return [df.count(), *sorted(df.collect()), *sorted(df.collect())]
    finally:
        df.unpersist(blocking=True)


ACTIONS: dict[str, Callable[[SparkSession], Any]] = {
    "collect": lambda spark: sorted(grouped(spark).collect()),
    "count": lambda spark: grouped(spark).count(),
    "toPandas": lambda spark: grouped(spark).toPandas().sort_values("k").values.tolist(),
    "toArrow": lambda spark: grouped(spark).toArrow().sort_by("k").to_pylist(),
    "take": lambda spark: ordered(spark).take(3),
    "first": lambda spark: ordered(spark).first(),
    "head": lambda spark: ordered(spark).head(2),
    "tail": lambda spark: ordered(spark).tail(2),
    "limit and offset": lambda spark: ordered(spark).offset(1).limit(3).collect(),
    "isEmpty": lambda spark: grouped(spark).where("n > 1000").isEmpty(),
    "toLocalIterator": lambda spark: sorted(grouped(spark).toLocalIterator()),
    "foreach": lambda spark: collected_by_tasks(grouped(spark), each_row=True),
    "foreachPartition": lambda spark: collected_by_tasks(grouped(spark), each_row=False),
    "rdd": lambda spark: sorted(grouped(spark).rdd.map(lambda row: row.v).collect()),
    "cache": lambda spark: cached(grouped(spark)),
    "localCheckpoint": lambda spark: sorted(grouped(spark).localCheckpoint().collect()),
    "describe": lambda spark: grouped(spark).describe().collect(),
    "summary": lambda spark: grouped(spark).summary("count", "max").collect(),
    "approxQuantile": lambda spark: grouped(spark).approxQuantile("v", [0.5], 0.0),
    "crosstab": lambda spark: sorted(grouped(spark).crosstab("k", "n").collect()),
    "sql": lambda spark: sorted(spark.sql("SELECT id % 3 AS k, count(*) FROM range(100) GROUP BY 1").collect()),
    "pandas on Spark": lambda spark: grouped(spark).pandas_api().groupby("n")["v"].sum().to_dict(),
    "subquery": lambda spark: spark.sql(
        "SELECT count(*) FROM range(100) WHERE id > (SELECT avg(id) FROM range(50))"
    ).collect(),
}


def assert_equal(actual: Any, expected: Any) -> None:
    """Compare rows in order, with a tolerance for doubles, and other values exactly."""
    if isinstance(expected, list) and expected and isinstance(expected[0], Row):
        assert [row.__fields__ for row in actual] == [row.__fields__ for row in expected]
        left, right = ([[approximate(value) for value in row] for row in rows] for rows in (actual, expected))
        assert are_equal(comparable_value(left), comparable_value(right)), f"{actual} instead of {expected}"
    else:
        assert actual == expected


def approximate(value: Any) -> Any:
    """Convert numeric texts, such as those of `describe`, to numbers."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_action_returns_the_result_of_plain_spark(spark: SparkSession, action: str) -> None:
    expected = ACTIONS[action](spark)
    with penstock.enabled(spark, config=OFF):
        before = list(RECENT)
        actual = ACTIONS[action](spark)
        jobs = [job for job in RECENT if job not in before]
    assert_equal(actual, expected)
    assert jobs, "Penstock ran nothing"
    assert all(job.state is ExecutionState.FINISHED for job in jobs)
    assert [decision.reason for job in jobs for decision in job.decisions if decision.chosen == RUN_BY_SPARK] == []


def write_partitioned(df: DataFrame, path: str) -> None:
    df.write.partitionBy("k").parquet(path)


def write_over_partitions(df: DataFrame, path: str) -> None:
    df.write.partitionBy("k").parquet(path)
    df.where("k < 2").withColumn("v", F.lit(0).cast("long")).write.mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).partitionBy("k").parquet(path)


def write_json(df: DataFrame, path: str) -> None:
    df.write.json(path)
    df.write.mode("append").json(path)


@pytest.mark.parametrize(
    "write", [write_partitioned, write_over_partitions, write_json], ids=lambda write: write.__name__
)
def test_written_files_have_the_rows_of_plain_spark(
    spark: SparkSession, tmp_path: Path, write: Callable[[DataFrame, str], None]
) -> None:
    write(grouped(spark), str(tmp_path / "without"))
    with penstock.enabled(spark, config=OFF):
        before = len(RECENT)
        write(grouped(spark), str(tmp_path / "with"))
        assert len(RECENT) > before
    kind = "json" if write is write_json else "parquet"
    actual, expected = (spark.read.format(kind).load(str(tmp_path / name)) for name in ("with", "without"))
    assert_same_rows(actual.collect(), expected.select(actual.columns).collect())


STATEMENTS = {
    "ctas": "CREATE TABLE {t} USING parquet AS SELECT id % 3 AS k, sum(id) AS v FROM range(100) GROUP BY 1",
    "insert into": "INSERT INTO {t} SELECT id % 3 + 10, sum(id) FROM range(100) GROUP BY 1",
    "insert overwrite": "INSERT OVERWRITE {t} SELECT id % 4, max(id) FROM range(100) GROUP BY 1",
}


def test_statements_that_write_tables(spark: SparkSession) -> None:
    def run(table: str) -> list[Any]:
        seen = []
        for statement in STATEMENTS.values():
            spark.sql(statement.format(t=table))
            seen.append(sorted(spark.table(table).collect()))
        return seen

    try:
        expected = run("without_penstock")
        with penstock.enabled(spark, config=OFF):
            before = len(RECENT)
            assert run("with_penstock") == expected
            assert len(RECENT) >= before + len(STATEMENTS)
    finally:
        for table in ("without_penstock", "with_penstock"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.thorough
def test_tables_with_buckets_and_catalog_writers(spark: SparkSession) -> None:
    def run(table: str) -> list[Any]:
        grouped(spark).write.bucketBy(3, "k").sortBy("k").mode("overwrite").saveAsTable(table)
        grouped(spark).write.insertInto(table)
        return sorted(spark.table(table).collect())

    try:
        expected = run("buckets_without")
        with penstock.enabled(spark, config=OFF):
            assert run("buckets_with") == expected
    finally:
        for table in ("buckets_without", "buckets_with"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.parametrize(
    ("repartition", "tasks"),
    [
        (lambda df: df.repartition(5), 5),
        (lambda df: df.coalesce(1), 1),
        (lambda df: df.repartition(4, "k"), 4),
        (lambda df: df.repartitionByRange(3, "k"), 3),
    ],
    ids=["repartition", "coalesce", "by key", "by range"],
)
def test_requested_partitions_are_respected(
    served: SparkSession, tmp_path: Path, repartition: Callable[[DataFrame], DataFrame], tasks: int
) -> None:
    assert repartition(grouped(served)).rdd.getNumPartitions() == tasks
    repartition(grouped(served)).write.parquet(str(tmp_path / "out"))
    assert len(list((tmp_path / "out").glob("part-*"))) <= tasks


def test_a_second_action_reuses_the_job(served: SparkSession) -> None:
    df = grouped(served)
    before = len(RECENT)
    assert sorted(df.collect()) == sorted(df.collect())
    assert len(RECENT) == before + 1


def test_explain_runs_nothing(served: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(RECENT)
    grouped(served).explain()
    assert "Penstock" in capsys.readouterr().out
    assert len(RECENT) == before


def test_a_query_in_foreach_batch_runs_as_a_job(served: SparkSession, tmp_path: Path) -> None:
    seen: list[Any] = []
    jobs: list[Job] = []

    def process_batch(batch: DataFrame, _: int) -> None:
        before = list(RECENT)
        seen.extend(batch.groupBy((F.col("value") % 2).alias("k")).count().collect())
        jobs.extend(job for job in RECENT if job not in before)

    served.range(10).select(F.col("id").alias("value")).write.parquet(str(tmp_path / "in"))
    stream = served.readStream.schema("value long").parquet(str(tmp_path / "in"))
    query = stream.writeStream.foreachBatch(process_batch).trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert sorted(seen) == [(0, 5), (1, 5)]
    assert jobs
