"""Several results of one job: each has plain Spark's rows, whatever they share and in whatever order they stand."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.results import ResultSink
from tests.equality import assert_same_rows
from tests.outcomes import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
FORCED = {VOLUME: "1 kb", "table.optimizer.join.broadcast__threshold": "-1"}


def results(env: Environment, frames: Any) -> Any:
    """Run DataFrames as one job; return the rows of each."""
    sinks = [ResultSink(f"result {place}", lambda df: df.collect()) for place in range(len(frames))]
    for df, sink in zip(frames, sinks, strict=True):
        env.write(df, sink)
    env.execute()
    return [sink.value for sink in sinks]


def check(env: Environment, frames: Any) -> None:
    with ThreadPoolExecutor(1) as aside:  # plain Spark runs at the same time
        expected = [aside.submit(df.collect) for df in frames]
        found = results(env, frames)
    for place, (rows, plainly) in enumerate(zip(found, expected, strict=True)):
        try:
            assert_same_rows(rows, plainly.result())
        except AssertionError as error:
            raise AssertionError(f"result {place}: {error}") from error


@pytest.fixture(scope="module")
def sums(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The number and the sum of the rows of each of 97 groups."""
    path = str(tmp_path_factory.mktemp("facts") / "t")
    spark.range(0, 9751, 1, 3).selectExpr("id % 97 as k", "id as v", "id % 7 as w").write.parquet(path)
    return spark.read.parquet(path).groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def from_rows(spark: SparkSession, rows: Any, columns: Any) -> Any:
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), columns)


# What one result makes of the rows that another one has.
MADE = {
    "all": lambda g, few: g,
    "again": lambda g, few: g.select("*"),
    "filtered": lambda g, few: g.where("n > 100"),
    "filtered columns": lambda g, few: g.where("n > 100").select("k", "n"),
    "filtered and summed": lambda g, few: g.where("n > 100").agg(F.sum("n")),
    "semi join": lambda g, few: g.join(few, "k", "left_semi"),
    "anti join": lambda g, few: g.join(few, "k", "left_anti"),
    "semi join of a filter": lambda g, few: g.where("n > 100").join(few, "k", "left_semi"),
    "join": lambda g, few: g.join(few, "k"),
    "distinct": lambda g, few: g.distinct(),
    "distinct of a filter": lambda g, few: g.where("n > 100").distinct(),
    "one of each": lambda g, few: g.dropDuplicates(["n"]).select("n"),
    "counted": lambda g, few: g.groupBy("n").count(),
    "union": lambda g, few: g.union(g),
    "self join": lambda g, few: g.alias("a").join(g.alias("b"), F.expr("a.k = b.n")).selectExpr("a.s", "b.k"),
    "sorted and limited": lambda g, few: g.orderBy("k").limit(5),
    "all within a limit": lambda g, few: g.limit(1000),
    "sampled": lambda g, few: g.sample(0.5, seed=7),
    "nothing": lambda g, few: g.where("1 = 0"),
    "nothing within a limit": lambda g, few: g.limit(0),
    "another order of columns": lambda g, few: g.select("s", "k", "n"),
    "windowed": lambda g, few: g.selectExpr("k", "rank() over (partition by n order by s) as r"),
    "subquery": lambda g, few: g.where(F.col("n") > 0).withColumn("m", F.col("n") + 1).where("m > 101"),
}

# name: the results of a job that once had wrong rows, or failed
CASES = {
    "a filter that two share": ["all", "filtered columns", "filtered and summed"],
    "a filter that two share, first": ["filtered and summed", "filtered columns", "all"],
    "a semi join of it": ["semi join", "all", "semi join"],
    "an anti join of it": ["all", "anti join", "anti join", "semi join"],
    "its distinct rows": ["distinct", "all", "distinct", "filtered"],
    "the same again": ["all", "again", "all"],
    "columns turned round": ["another order of columns", "all", "filtered"],
    "nobody reads it": ["nothing", "nothing within a limit"],
    "one reads it": ["nothing", "all", "nothing within a limit"],
    "unions of itself": ["union", "all", "union", "filtered"],
    "self joins": ["self join", "all", "self join"],
    "a part within a part": ["distinct of a filter", "filtered", "distinct of a filter", "all", "filtered and summed"],
    "samples": ["sampled", "all", "sampled"],
    "limits": ["sorted and limited", "all within a limit", "all"],
    "all joins": ["join", "semi join", "anti join", "semi join of a filter", "all"],
}


@pytest.mark.parametrize("name", CASES)
def test_results_of_one_aggregate(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any, name: str
) -> None:
    few = spark.range(30).selectExpr("id as k")
    check(make_env(**(FORCED if len(name) % 2 else {})), [MADE[one](sums, few) for one in CASES[name]])


@pytest.mark.parametrize("seed", some(range(8), 4))
def test_results_in_any_order(make_env: Callable[..., Environment], spark: SparkSession, sums: Any, seed: Any) -> None:
    picked = random.Random(seed).sample(sorted(MADE), 3 + seed % 4)
    few = spark.range(30).selectExpr("id as k")
    check(make_env(**(FORCED if seed % 2 else {})), [MADE[one](sums, few) for one in picked])


def on_inputs(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """Return inputs that Spark keeps: frames of rows, checkpoints, cached data."""
    rows = [(i % 5, i % 3, i) for i in range(40)]
    made = spark.range(0, 40, 1, 3).selectExpr("id % 5 as a", "id % 3 as b", "id as c")
    yield "rows in memory", spark.createDataFrame(rows, "a int, b int, c int")
    yield "an RDD", from_rows(spark, rows, "a int, b int, c int")
    yield "a local checkpoint", made.localCheckpoint()
    spark.sparkContext.setCheckpointDir(str(tmp_path))
    yield "a checkpoint", made.checkpoint()
    yield "cached rows", made.cache()
    yield "cached groups", made.groupBy("a", "b").agg(F.max("c").alias("c")).cache()


@pytest.mark.thorough
@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::3])
def test_results_of_what_spark_keeps(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path, order: Any
) -> None:
    for name, df in on_inputs(spark, tmp_path):
        best = df.groupBy("a").agg(F.min("c").alias("c"))
        made = [df, df.dropDuplicates(["a"]).select("a"), df.where("b > 0").distinct(), best, best.where("c > 1")]
        try:
            check(make_env(), [made[place] for place in order] + made[3:])
        except Exception as error:
            error.add_note(name)
            raise
        finally:
            df.unpersist()


def test_cached_rows_stay_those_of_the_time_they_were_cached_at(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    spark.range(20).selectExpr("id % 3 as k", "id").write.parquet(path)
    groups = spark.read.parquet(path).groupBy("k").agg(F.count("*").alias("n"))
    large = groups.where("n > 6").cache()
    assert large.count() == 2
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()  # what is cached is all there is now
    found = results(make_env(), [large, large.select("n")])
    assert [len(rows) for rows in found] == [2, 2]
    large.unpersist()


CTES = {
    "whole": "select * from x",
    "filtered": "select k from x where n > 100",
    "joined": "select a.k, b.n from x a join x b on a.k = b.k",
    "grouped": "select n, count(*) from x group by n",
}


def test_results_of_queries_with_common_table_expressions(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any
) -> None:
    sums.createOrReplaceTempView("sums")
    query = "with x as (select k, sum(n) as n from sums group by k) "
    frames = [spark.sql(query + rest) for rest in CTES.values()]
    check(make_env(), [*frames, frames[0].groupBy("n").count(), frames[2].where("k > 3"), frames[2]])
    spark.catalog.dropTempView("sums")


def test_one_result_fails_and_the_others_show_nothing(make_env: Callable[..., Environment], sums: Any) -> None:
    env = make_env()
    with pytest.raises(PenstockError):
        results(env, [sums, sums.select(F.expr("1 / (n - n)"))])
    check(env, [sums, sums.where("n > 100")])


# -- one path at two times -----------------------------------------------------------------------------------------


@pytest.fixture
def grown(spark: SparkSession, tmp_path: Path) -> Any:
    """A path as it was before and after more rows came."""
    path = str(tmp_path / "t")
    seen = []
    for rows in (10, 25):
        spark.range(rows).selectExpr("id % 3 as k", "id").write.mode("append").parquet(path)
        seen.append(spark.read.parquet(path))
    return seen


GROWN = {
    "groups": lambda df: df.groupBy("k").count(),
    "other functions": lambda df: df.groupBy("k").agg(F.sum("id"), F.count("*")),
    "distinct": lambda df: df.select("k").distinct(),
    "self join": lambda df: df.alias("a").join(df.alias("b"), "k").groupBy("k").count(),
    "windowed": lambda df: df.selectExpr("k", "count(*) over (partition by k) as n"),
}


@pytest.mark.parametrize("name", GROWN)
def test_a_path_before_and_after_it_grew(make_env: Callable[..., Environment], grown: Any, name: str) -> None:
    before, after = map(GROWN[name], grown)
    check(make_env(), [before, after, before, after.where("k > 0")])
    check(make_env(**FORCED), [after, before])


@pytest.mark.parametrize("name", GROWN)
def test_a_path_before_and_after_it_grew_in_one_result(
    make_env: Callable[..., Environment], grown: Any, name: str
) -> None:
    before, after = map(GROWN[name], grown)
    check(make_env(), [before.union(after)])
    check(make_env(), [after.unionAll(before), before])


# -- one time ------------------------------------------------------------------------------------------------------

TIMES = [
    "current_timestamp()",
    "now()",
    "localtimestamp()",
    "cast(current_timestamp() as double)",
    "unix_micros(now())",
]


@pytest.mark.parametrize("time", TIMES)
def test_all_results_have_one_time(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any, time: str
) -> None:
    frames = [
        sums.selectExpr("k", f"{time} as t"),
        sums.where("n > 100").selectExpr("k", f"{time} as t"),
        spark.range(3).selectExpr("id", f"{time} as t"),
        sums.selectExpr("k", f"{time} as t").groupBy("t").count().select("count", "t"),
        spark.sql(f"select 1 as one, (select max({time}) from range(2)) as t"),
    ]
    assert len({row["t"] for rows in results(make_env(), frames) for row in rows}) == 1


def test_what_is_kept_has_the_time_at_which_it_was_made(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any
) -> None:
    kept = sums.selectExpr("k", "n", "current_timestamp() as t").cache()
    try:
        (made,) = {row.t for row in kept.collect()}
        found = results(make_env(), [kept, kept.where("n > 100"), sums.selectExpr("k", "current_timestamp() as now")])
        assert {row.t for rows in found[:2] for row in rows} == {made}
        assert {row.now for row in found[2]} != {made}
    finally:
        kept.unpersist()


def test_one_result_has_one_time(make_env: Callable[..., Environment], sums: Any) -> None:
    df = sums.withColumn("t", F.current_timestamp()).join(sums.withColumn("u", F.current_timestamp()), "k")
    assert len({row[name] for row in make_env().collect(df) for name in ("t", "u")}) == 1
