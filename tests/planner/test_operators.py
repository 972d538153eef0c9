"""Operators beyond plain SQL: Python functions, cached data, nested types, observed metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType

from tests.support.equality import assert_as_plain_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


@pytest.fixture(scope="module")
def numbers(spark: SparkSession) -> Any:
    return spark.range(0, 2000, 1, 5).selectExpr("id", "id % 17 as k", "cast(id as double) as x")


def scaled(batches: Any) -> Iterator[Any]:
    for batch in batches:
        yield batch.assign(x=batch.x * 2)


def centred(group: pd.DataFrame) -> pd.DataFrame:
    return group.assign(x=group.x - group.x.mean())


def both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [left.k.iloc[0] if len(left) else -1], "n": [len(left) * 1000 + len(right)]})


@F.udf(LongType())
def increment(value):  # type: ignore[no-untyped-def]  # Spark would look at types
    return value + 1


@F.pandas_udf(DoubleType())
def mean(values: pd.Series) -> float:
    return values.mean()


CASES = {
    "python udf": lambda df: df.withColumn("k", increment("k")).groupBy("k").count(),
    "python udf in a filter": lambda df: df.where(increment("k") > 5).groupBy("k").count(),
    "pandas aggregate": lambda df: df.groupBy("k").agg(mean("x")),
    "mapInPandas": lambda df: df.mapInPandas(scaled, df.schema).groupBy("k").sum("x"),
    "applyInPandas": lambda df: df.groupBy("k").applyInPandas(centred, df.schema),
    "applyInPandas behind an aggregate": lambda df: (
        df.groupBy("id", "k").agg(F.sum("x").alias("x")).groupBy("k").applyInPandas(centred, df.schema)
    ),
    "cogroup": lambda df: df.groupBy("k").cogroup(df.where("k < 9").groupBy("k")).applyInPandas(both, "k long, n long"),
    "cogroup of joins": lambda df: (
        df.join(df.selectExpr("id", "k as j").hint("merge"), "id")
        .groupBy("id")
        .cogroup(df.sparkSession.range(9).selectExpr("id", "id as x").groupBy("id"))
        .applyInPandas(both_by_id, "k long, n long")
    ),
    "nested": lambda df: (
        df.groupBy("k")
        .agg(
            F.struct(
                F.max("id").alias("m"), F.map_from_arrays(F.array(F.lit("a")), F.array(F.min("x"))).alias("n")
            ).alias("s")
        )
        .select("k", "s.*")
    ),
    "explode": lambda df: (
        df.groupBy("k")
        .agg(F.sort_array(F.collect_list("id")).alias("ids"))
        .select("k", F.posexplode("ids"))
        .groupBy("pos")
        .sum("col")
    ),
    "rollup": lambda df: df.rollup("k", F.col("id") % 3).count(),
    "pivot": lambda df: df.groupBy("k").pivot("k", [1, 2]).sum("x"),
    "cached": lambda df: df.where("k > 3").cache().groupBy("k").count(),
    "limit in the middle": lambda df: df.orderBy("id").limit(100).groupBy("k").count(),
    "offset": lambda df: df.orderBy("id").offset(1990),
    "single row": lambda df: df.sparkSession.sql("select 1 as a, 'x' as b"),
    "rand": lambda df: df.withColumn("r", F.rand(1)).groupBy("k").agg(F.max(F.col("r") <= 1)),
    "empty": lambda df: df.where("k > 100").groupBy("k").count(),
    "empty global": lambda df: df.where("k > 100").agg(F.count("*"), F.sum("x")),
    "self join": lambda df: df.alias("a").join(df.alias("b"), F.expr("a.id = b.id + 1")).groupBy("a.k").count(),
    "repartitioned by range": lambda df: df.repartitionByRange(4, "x").groupBy("k").count(),
    "sorted within partitions": lambda df: (
        df.repartition(3, "k").sortWithinPartitions("x").groupBy("k").agg(F.sum("id"))
    ),
    "hinted join": lambda df: (
        df.join(F.broadcast(df.selectExpr("k as j", "id as i").where("i < 17")), F.expr("k = j")).groupBy("j").count()
    ),
    "grouping sets over a union": lambda df: df.union(df).cube("k").agg(F.sum("id")),
    "union of aggregates, aggregated again": lambda df: (
        df.groupBy("k").count().union(df.where("k < 5").groupBy("k").count()).groupBy("k").sum("count")
    ),
    "union of joins on the key of the aggregate": lambda df: (
        _joined(df, 1).union(_joined(df, 2)).groupBy("k").sum("id")
    ),
}


def both_by_id(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [left.id.iloc[0] if len(left) else -1], "n": [len(left) * 1000 + len(right)]})


def _joined(df: DataFrame, factor: Any) -> Any:
    return df.join(
        df.selectExpr("k as j", f"id * {factor} as i").where("i < 40").hint("merge"), F.expr("k = j")
    ).select("k", "id")


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("volume", [pytest.param("16 mb", marks=pytest.mark.slow), "200 b"])
def test_an_operator_returns_the_rows_of_spark(
    make_env: Callable[..., Environment], numbers: Any, name: str, volume: str
) -> None:
    df = CASES[name](numbers)
    env = make_env(**{"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": volume})
    assert_as_plain_spark(env, df)


def test_collect_preserves_the_order_of_a_sort(env: Environment, numbers: Any) -> None:
    df = numbers.orderBy(F.col("k").desc(), "id")
    assert env.collect(df) == df.collect()


def test_observed_metrics_are_reported(env: Environment, numbers: Any) -> None:
    observation = Observation("seen")
    df = numbers.observe(observation, F.count("*").alias("rows")).groupBy("k").count()
    assert len(env.collect(df)) == 17
    assert observation.get == {"rows": 2000}
