"""Which queries Spark delegates, and why others are declined."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import penstock
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.run import query_hook
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NARROW = "needs no shuffle"
SHUFFLE = "spark.sql.shuffle.partitions"
PARTITIONS = "its rows depend on the partitions in which Spark reads them"
DELEGATED = "taken"
QUERIES: dict[str, tuple[Callable[[DataFrame], Any], str]] = {
    "filter": (lambda df: df.filter("id > 3").rdd.count(), NARROW),
    "union": (lambda df: df.union(df).select("id").toPandas(), NARROW),
    "coalesce": (lambda df: df.coalesce(1).sortWithinPartitions("id").toPandas(), NARROW),
    "group": (lambda df: df.groupBy("k").count().collect(), DELEGATED),
    "union of groups": (lambda df: df.groupBy("k").count().union(df.groupBy("k").count()).collect(), DELEGATED),
    "repartition": (lambda df: df.repartition(3).collect(), DELEGATED),
    "subquery": (
        lambda df: df.sparkSession.sql("select id from t where id > (select avg(id) from t)").collect(),
        DELEGATED,
    ),
    "sample": (lambda df: df.sample(fraction=0.5, seed=1).groupBy("k").count().collect(), PARTITIONS),
    "split": (lambda df: df.groupBy("k").count().randomSplit([0.5, 0.5], 1)[0].collect(), PARTITIONS),
    "rand of files": (lambda df: df.withColumn("r", F.rand(1)).groupBy("k").agg(F.sum("r")).collect(), PARTITIONS),
    "filter by rand": (lambda df: df.filter(F.rand(1) > 0.5).groupBy("k").count().collect(), PARTITIONS),
    "numbers": (lambda df: df.withColumn("m", F.monotonically_increasing_id()).repartition(2).collect(), PARTITIONS),
    "rand of groups": (lambda df: df.groupBy("k").count().withColumn("r", F.rand(1)).collect(), DELEGATED),
    "file names": (lambda df: df.groupBy(F.input_file_name()).count().collect(), DELEGATED),
    "objects": (lambda df: df.groupBy("k").count()._jdf.rdd().count(), DELEGATED),
}


@pytest.fixture(scope="module")
def df(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path: Path = tmp_path_factory.mktemp("delegation") / "t"
    spark.range(0, 100, 1, 4).withColumn("k", F.col("id") % 7).write.parquet(str(path))
    read = spark.read.parquet(str(path))
    read.createOrReplaceTempView("t")
    return read


def changed_counts(spark: SparkSession, run: Callable[[DataFrame], Any], df: DataFrame, config: Any) -> set[str]:
    with penstock.enabled(spark, config=config):
        before = query_hook.query_counts(Bridge(spark))
        run(df)
        return {
            reason for reason, count in query_hook.query_counts(Bridge(spark)).items() if count != before.get(reason, 0)
        }


@pytest.mark.parametrize("name", QUERIES)
def test_query(name: str, df: DataFrame) -> None:
    run, expected = QUERIES[name]
    assert changed_counts(df.sparkSession, run, df, OFF) == {expected}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("threshold", "expected"),
    [("0", DELEGATED), ("100", DELEGATED), ("1kb", DELEGATED), ("1 MB", "small"), ("1g", "small")],
)
def test_the_threshold_of_a_session(df: DataFrame, threshold: str, expected: str) -> None:
    """The table has a few kilobytes."""
    option = "spark.penstock.execution.batch.adaptive.whole-query-threshold"
    with with_settings(df.sparkSession, {option: threshold}):
        assert changed_counts(df.sparkSession, QUERIES["group"][0], df, {"execution.native": False}) == {expected}


def test_without_adaptive_execution(df: DataFrame) -> None:
    with with_settings(df.sparkSession, {"spark.sql.adaptive.enabled": "false"}):
        (reason,) = changed_counts(df.sparkSession, QUERIES["group"][0], df, OFF)
    assert reason.startswith("adaptive execution is off")


def test_without_coalescing_of_partitions(df: DataFrame) -> None:
    def partitions(df: DataFrame) -> None:
        assert df.groupBy("k").count().rdd.getNumPartitions() == int(df.sparkSession.conf.get(SHUFFLE))

    with with_settings(df.sparkSession, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        (reason,) = changed_counts(df.sparkSession, partitions, df, OFF)
    assert reason.startswith("adaptive execution may not coalesce partitions")


def test_a_query_without_a_shuffle_is_delegated_if_configured(df: DataFrame) -> None:
    assert changed_counts(df.sparkSession, QUERIES["filter"][0], df, OFF | {"sink.parallelism": 3}) == {DELEGATED}
