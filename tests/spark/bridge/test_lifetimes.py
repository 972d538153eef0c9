"""Objects that plans refer to by a number live exactly as long as the plans."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.spark.plans import dataframes
from penstock.spark.run import barrier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


def live_entries(spark: SparkSession) -> Any:
    """Return the number of plan hints and functions that survive garbage collection."""
    gc.collect()
    _wait_for_finalizers(spark)
    for _ in range(3):
        spark._jvm.java.lang.System.gc()
        time.sleep(0.2)
    # Collected entries are removed when a new entry is added.
    penstock.rebalance(penstock.with_parallelism(spark.range(1), 1), 2, adaptive=True).dataframe()
    return len(dataframes._HINTS), len(barrier._ATTACHED)


def _wait_for_finalizers(spark: SparkSession) -> None:
    """Wait until py4j has reported collected Python objects to the JVM, which it does once a second."""
    pending = spark.sparkContext._gateway._gateway_client.finalizer_deque
    deadline = time.monotonic() + 5
    while pending and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.thorough
def test_hints_are_freed_with_their_plans(spark: SparkSession) -> None:
    before = live_entries(spark)
    many = [penstock.with_parallelism(spark.range(10), 2) for _ in range(30)]
    many += [penstock.rebalance(spark.range(10), 2, adaptive=True).dataframe() for _ in range(10)]
    during = live_entries(spark)
    assert during[0] >= before[0] + 30
    assert during[1] >= before[1] + 10
    many.clear()
    after = live_entries(spark)
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2


def ran_with(env: Environment, df: DataFrame) -> Any:
    env.collect(df)
    return [vertex.tasks for vertex in env.last_job.vertices]


WAYS = {
    "derived": lambda df: df.where("count > 0").withColumnRenamed("count", "n").select("n", "k"),
    "joined with itself": lambda df: df.alias("a").join(df.alias("b"), "k"),
    "renamed and joined": lambda df: df.join(df.withColumnRenamed("count", "n"), "k"),
    "under a union": lambda df: df.union(df.where("k > 1")),
    "in a subquery": lambda df: df.where("k in (select max(id) % 7 from range(9))"),
    "with a hint": lambda df: df.hint("merge").orderBy("k"),
}


@pytest.mark.thorough
def test_a_hint_lives_in_every_derived_plan(spark: SparkSession, env: Environment) -> None:
    base = spark.range(0, 100, 1, 4).selectExpr("id % 7 as k")
    for name, way in WAYS.items():
        marked = penstock.with_parallelism(base.groupBy("k").count(), 3)
        derived = way(marked)
        fresh = ran_with(env, derived)
        del marked
        live_entries(spark)
        assert ran_with(env, derived) == fresh, name
        assert {3, 6} & set(fresh), name  # a union has three tasks per side


@pytest.mark.thorough
def test_a_hint_lives_in_a_view_and_in_the_cache(spark: SparkSession, env: Environment) -> None:
    base = spark.range(0, 100, 1, 4).selectExpr("id % 7 as k")
    penstock.with_parallelism(base.groupBy("k").count(), 3).createOrReplaceTempView("marked")
    live_entries(spark)
    assert 3 in ran_with(env, spark.table("marked"))
    assert 3 in ran_with(env, spark.sql("select k, count + 1 from marked where k > 2"))
    spark.catalog.dropTempView("marked")
    cached = penstock.with_parallelism(base.groupBy("k").count(), 3).cache()
    rows = sorted(map(tuple, env.collect(cached)))
    live_entries(spark)
    assert sorted(map(tuple, env.collect(cached))) == rows
    cached.unpersist()


@pytest.mark.thorough
def test_an_exchange_lives_with_its_plan(spark: SparkSession, env: Environment) -> None:
    df = penstock.rebalance(spark.range(50), 2, adaptive=True).map_in_arrow(lambda rows: rows, "id long")
    derived = df.selectExpr("id + 1 as n")
    del df
    live_entries(spark)
    assert len(env.collect(derived)) == 50
    assert "rebalance" in {decision.kind.value for decision in env.last_job.decisions}
