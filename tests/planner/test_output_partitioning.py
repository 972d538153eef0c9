"""Output partitionings that operators drop, rename or multiply: the rows are those of plain Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from penstock.errors import JobError
from tests.support.equality import assert_as_plain_spark
from tests.support.outcomes import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
SMALL = {VOLUME: "1 kb", "execution.batch.adaptive.auto__parallelism.max__parallelism": 5}
MODES = {
    "many tasks": SMALL,
    "shuffled": SMALL
    | {"table.optimizer.join.broadcast__threshold": -1, "table.optimizer.adaptive__broadcast__join.strategy": "NONE"},
    "defaults": {},
}


def double(x: pd.Series) -> pd.Series:
    return x * 2


def twice(frames: Any) -> Iterator[Any]:
    yield from frames


def counts(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    keys = (left if len(left) else right).iloc[:1, 0]
    return pd.DataFrame({"k": keys, "n": [len(left)], "m": [len(right)]})


@F.udtf(returnType=StructType().add("y", LongType()))
class Repeats:
    def eval(self, n: int) -> Iterator[Any]:
        for i in range((n or 0) % 3):
            yield (i,)


pandas_double = F.pandas_udf(double, LongType())
python_double = F.udf(lambda x: None if x is None else x * 2, LongType())
arrow_double = F.udf(lambda x: None if x is None else x * 2, LongType(), useArrow=True)
PIPELINES = {
    "pandas column, inner": lambda t: t.sums.withColumn("u", pandas_double("s")).join(t.most, "k"),
    "python column, inner": lambda t: t.sums.withColumn("u", python_double("s")).join(t.most, "k"),
    "arrow column, full": lambda t: t.sums.withColumn("u", arrow_double("s")).join(t.most, "k", "full"),
    "pandas filter, left": lambda t: t.sums.where(pandas_double("k") > 20).join(t.most, "k", "left"),
    "python filter, anti": lambda t: t.most.join(t.sums.where(python_double("k") > 20), "k", "anti"),
    "python column, semi": lambda t: t.sums.withColumn("u", python_double("s")).join(t.most, "k", "semi"),
    "python column, right": lambda t: t.sums.withColumn("u", python_double("s")).join(t.most, "k", "right"),
    "both with python columns": lambda t: t.sums.withColumn("u", python_double("s")).join(
        t.most.withColumn("w", pandas_double("m")), "k"
    ),
    "python column, window": lambda t: t.sums.withColumn("u", python_double("s")).selectExpr(
        "k", "u", "sum(u) over (partition by k) w"
    ),
    "window, pandas column, inner": lambda t: t.windowed.withColumn("u", pandas_double("w")).join(t.most, "k"),
    "python column, cogroup": lambda t: (
        t.sums.withColumn("u", python_double("s"))
        .groupBy("k")
        .cogroup(t.most.groupBy("k"))
        .applyInPandas(counts, "k long, n long, m long")
    ),
    "udtf, inner": lambda t: t.sums.lateralJoin(Repeats(F.col("k").outer())).join(t.most, "k"),  # type: ignore[call-arg]
    "udtf, full": lambda t: t.most.join(t.sums.lateralJoin(Repeats(F.col("k").outer())), "k", "full"),  # type: ignore[call-arg]
    "cross join, cogroup": lambda t: (
        t.sums.crossJoin(t.single_row)
        .selectExpr("k as g", "s", "x")
        .groupBy("g")
        .cogroup(t.most.groupBy("k"))
        .applyInPandas(counts, "k long, n long, m long")
    ),
    "cross join, inner": lambda t: t.sums.crossJoin(t.single_row).join(t.most, "k"),
    "cross join, anti": lambda t: t.most.join(t.sums.crossJoin(t.single_row).where("k % 3 = 1"), "k", "anti"),
    "range join, full": lambda t: t.sums.join(t.single_row, F.col("s") > F.col("x")).join(t.most, "k", "full"),
    "mapInPandas, inner": lambda t: t.sums.mapInPandas(twice, t.sums.schema).join(t.most, "k"),
    "mapInArrow, full": lambda t: t.sums.mapInArrow(twice, t.sums.schema).join(t.most, "k", "full"),
    "explode, inner": lambda t: t.sums.selectExpr("k", "explode(sequence(1, k % 4 + 1)) e").join(t.most, "k"),
    "sample, inner": lambda t: t.sums.sample(1.0, seed=3).join(t.most, "k"),
    "renamed, inner": lambda t: (
        t.sums.selectExpr("k as key", "s").withColumn("u", python_double("s")).join(t.most, F.expr("key = k"))
    ),
    "computed key, inner": lambda t: t.sums.withColumn("u", python_double("s")).join(t.most, F.expr("u = m * 2")),
    "unpivot, inner": lambda t: t.sums.join(t.most, "k").unpivot("k", ["s", "m"], "name", "v").join(t.most, "k"),
    "rollup, inner": lambda t: t.facts.rollup("k", "j").agg(F.sum("v").alias("s")).join(t.most, "k"),
    "four keys with a broadcast between": lambda t: (
        t.four("v")
        .join(
            F.broadcast(t.four("w").selectExpr("a a2", "b b2", "c c2", "d d2", "w")),
            F.expr("a = a2 and b = b2 and c = c2 and d = d2"),
        )
        .join(
            t.four("z").selectExpr("a a3", "b b3", "c c3", "d d3", "z"),
            F.expr("a2 = a3 and b2 = b3 and c2 = c3 and d2 = d3"),
        )
    ),
    "four keys, half of each side's names": lambda t: (
        t.four("v")
        .join(
            F.broadcast(t.four("w").selectExpr("a a2", "b b2", "c c2", "d d2", "w")),
            F.expr("a = a2 and b = b2 and c = c2 and d = d2"),
        )
        .join(
            t.four("z").selectExpr("a a3", "b b3", "c c3", "d d3", "z"),
            F.expr("a = a3 and b2 = b3 and c = c3 and d2 = d3"),
            "full",
        )
    ),
    "union of groups, inner": lambda t: t.sums.union(t.most).join(t.most, "k"),
    "intersect of groups": lambda t: (
        t.sums.select("k").withColumn("u", python_double("k")).intersect(t.most.select("k", F.expr("k * 2")))
    ),
    "except of groups": lambda t: t.most.select("k").exceptAll(t.sums.where(python_double("k") > 50).select("k")),
    "repartitioned, python column, inner": lambda t: (
        t.facts.repartition("k").withColumn("u", python_double("v")).join(t.most, "k")
    ),
    "repartitioned by 5, inner": lambda t: (
        t.facts.repartition(5, "k").withColumn("u", python_double("v")).join(t.most, "k")
    ),
    "cached groups, inner": lambda t: t.cached.withColumn("u", python_double("s")).join(t.most, "k"),
    "groups of groups, inner": lambda t: (
        t.sums.withColumn("u", python_double("s")).groupBy("k").agg(F.max("u").alias("u")).join(t.most, "k")
    ),
    "applyInPandas, inner": lambda t: (
        t.facts.groupBy("k").applyInPandas(lambda f: f[["k", "v"]].nlargest(1, "v"), "k long, v long").join(t.most, "k")
    ),
}


class Tables:
    """A few thousand rows with null keys and a hot key."""

    def __init__(self, spark: SparkSession) -> None:
        self.facts = spark.range(0, 3000, 1, 3).selectExpr(
            "if(id % 53 = 0, null, if(id % 3 = 0, 7, id % 97)) k", "id % 5 j", "id v"
        )
        self.sums = self.facts.groupBy("k").agg(F.sum("v").alias("s"))
        self.most = self.facts.where("k < 80 or k is null").groupBy("k").agg(F.max("v").alias("m"))
        self.windowed = self.facts.selectExpr("k", "v", "sum(v) over (partition by k) w")
        self.single_row = spark.range(1).selectExpr("id + 1 as x")
        self.cached = self.facts.groupBy("k").agg(F.sum(F.expr("v + 1")).alias("s")).cache()

    def four(self, name: Any) -> Any:
        keys = "k % 2 as a", "k % 3 as b", "k % 5 as c", "k % 7 as d"
        return self.facts.selectExpr(*keys, "v").groupBy("a", "b", "c", "d").agg(F.sum("v").alias(name))


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[Any]:
    tables = Tables(spark)
    yield tables
    tables.cached.unpersist()


@pytest.mark.parametrize("mode", mostly_slow(MODES, len(MODES)))
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_operators_with_partitioned_inputs_return_the_rows_of_spark(
    make_env: Callable[..., Environment], tables: Any, pipeline: str, mode: Any
) -> None:
    df = PIPELINES[pipeline](tables)
    assert_as_plain_spark(make_env(**MODES[mode]), df)


def test_a_wrong_layout_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tables: Any
) -> None:
    """A leaf claims a hash partitioning that its rows do not have."""
    from penstock.spark.bridge.handles import Partitioning
    from penstock.spark.run import layouts

    def claim(plan: Any, output: Any) -> Any:
        bridge = plan._bridge
        hashing = bridge.find("org.apache.spark.sql.catalyst.plans.physical.HashPartitioning")
        return Partitioning(bridge, hashing(bridge.seq([output.columns()[-1]]), plan.rows().tasks))

    monkeypatch.setattr(layouts, "layout", claim)
    with pytest.raises(JobError, match=r"claims rows hashed by .* it has a row of \d+"):
        make_env(**MODES["many tasks"]).collect(tables.sums.join(tables.most, "k"))


def test_a_missing_subpartition_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tables: Any
) -> None:
    from penstock.scheduler.deciders import exchange_tasks

    decide = exchange_tasks.decide_vertex

    def drop_last(*arguments: Any) -> Any:
        decision = decide(*arguments)
        *others, (start, end) = decision.ranges
        return replace(decision, ranges=[*others, (start, max(end - 1, start))])

    monkeypatch.setattr(exchange_tasks, "decide_vertex", drop_last)
    with pytest.raises(JobError, match="exactly once"):
        make_env(**MODES["many tasks"]).collect(tables.sums.join(tables.most, "k"))


@pytest.mark.thorough
def test_a_filter_that_drops_its_own_keys_fails_the_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tmp_path: Path
) -> None:
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.run import filters

    spark.range(0, 20_000, 1, 3).selectExpr("id % 97 k", "id v").write.parquet(str(tmp_path / "facts"))
    spark.range(0, 97, 1, 3).selectExpr("id k", "id % 10 w").write.parquet(str(tmp_path / "few"))
    df = spark.read.parquet(str(tmp_path / "facts")).join(spark.read.parquet(str(tmp_path / "few")).where("w = 3"), "k")
    env = make_env(**MODES["shuffled"])
    assert_as_plain_spark(env, df)
    assert "dynamic filter" in {decision.kind.value for decision in env.last_job.decisions}
    might_contain = filters.might_contain

    def contains_none(key_set: Any, keys: Any) -> Any:
        predicate = might_contain(key_set, keys)
        negation = predicate._bridge.find("org.apache.spark.sql.catalyst.expressions.Not")
        return Expression(predicate._bridge, negation(predicate))

    monkeypatch.setattr(filters, "might_contain", contains_none)
    with pytest.raises(JobError, match=r"the filter by keys .* drops a row that it must keep"):
        env.collect(df)
