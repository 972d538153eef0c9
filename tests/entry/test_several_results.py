"""Several results of a job have the rows of Spark, regardless of their shared parts and their order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.entry.results import ResultSink
from penstock.errors import PenstockError
from tests.support.equality import assert_same_rows
from tests.support.outcomes import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
FORCED = {VOLUME: "1 kb", "table.optimizer.join.broadcast__threshold": "-1"}


def results(env: Environment, frames: Any) -> Any:
    """Run DataFrames in a single job; return the rows of each."""
    sinks = [ResultSink(f"result {number}", lambda df: df.collect()) for number in range(len(frames))]
    for df, sink in zip(frames, sinks, strict=True):
        env.write(df, sink)
    env.execute()
    return [sink.value for sink in sinks]


def check(env: Environment, frames: Any) -> None:
    with ThreadPoolExecutor(1) as pool:  # plain Spark runs at the same time
        expected = [pool.submit(df.collect) for df in frames]
        actual = results(env, frames)
    for number, (rows, expected_rows) in enumerate(zip(actual, expected, strict=True)):
        try:
            assert_same_rows(rows, expected_rows.result())
        except AssertionError as error:
            raise AssertionError(f"result {number}: {error}") from error


@pytest.fixture(scope="module")
def sums(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the count and the sum of each of 97 groups."""
    path = str(tmp_path_factory.mktemp("facts") / "t")
    spark.range(0, 9751, 1, 3).selectExpr("id % 97 as k", "id as v", "id % 7 as w").write.parquet(path)
    return spark.read.parquet(path).groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def from_rows(spark: SparkSession, rows: Any, columns: Any) -> Any:
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), columns)


# Queries on shared groups.
QUERIES = {
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
    "distinct by a column": lambda g, few: g.dropDuplicates(["n"]).select("n"),
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

# Jobs that once had wrong rows, or failed: their results.
CASES = {
    "a shared filter": ["all", "filtered columns", "filtered and summed"],
    "a shared filter first": ["filtered and summed", "filtered columns", "all"],
    "semi joins": ["semi join", "all", "semi join"],
    "anti joins": ["all", "anti join", "anti join", "semi join"],
    "distinct rows": ["distinct", "all", "distinct", "filtered"],
    "the same result repeatedly": ["all", "again", "all"],
    "columns in another order": ["another order of columns", "all", "filtered"],
    "without readers": ["nothing", "nothing within a limit"],
    "a single reader": ["nothing", "all", "nothing within a limit"],
    "unions of itself": ["union", "all", "union", "filtered"],
    "self joins": ["self join", "all", "self join"],
    "a part within a part": ["distinct of a filter", "filtered", "distinct of a filter", "all", "filtered and summed"],
    "samples": ["sampled", "all", "sampled"],
    "limits": ["sorted and limited", "all within a limit", "all"],
    "all joins": ["join", "semi join", "anti join", "semi join of a filter", "all"],
}


@pytest.mark.parametrize("name", CASES)
def test_results_that_share_an_aggregate_are_those_of_spark(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any, name: str
) -> None:
    few = spark.range(30).selectExpr("id as k")
    check(make_env(**(FORCED if len(name) % 2 else {})), [QUERIES[query](sums, few) for query in CASES[name]])


@pytest.mark.parametrize("seed", mostly_slow(range(8), 4))
def test_random_results_that_share_an_aggregate_are_those_of_spark(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any, seed: Any
) -> None:
    picked = random.Random(seed).sample(sorted(QUERIES), 3 + seed % 4)
    few = spark.range(30).selectExpr("id as k")
    check(make_env(**(FORCED if seed % 2 else {})), [QUERIES[query](sums, few) for query in picked])


def stored_inputs(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """Yield inputs that Spark stores: rows in memory, checkpoints, cached data."""
    rows = [(i % 5, i % 3, i) for i in range(40)]
    df = spark.range(0, 40, 1, 3).selectExpr("id % 5 as a", "id % 3 as b", "id as c")
    yield "rows in memory", spark.createDataFrame(rows, "a int, b int, c int")
    yield "an RDD", from_rows(spark, rows, "a int, b int, c int")
    yield "a local checkpoint", df.localCheckpoint()
    spark.sparkContext.setCheckpointDir(str(tmp_path))
    yield "a checkpoint", df.checkpoint()
    yield "cached rows", df.cache()
    yield "cached groups", df.groupBy("a", "b").agg(F.max("c").alias("c")).cache()


@pytest.mark.thorough
@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::3])
def test_results_of_stored_inputs_are_those_of_spark(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path, order: Any
) -> None:
    for name, df in stored_inputs(spark, tmp_path):
        best = df.groupBy("a").agg(F.min("c").alias("c"))
        frames = [df, df.dropDuplicates(["a"]).select("a"), df.where("b > 0").distinct(), best, best.where("c > 1")]
        try:
            check(make_env(), [frames[index] for index in order] + frames[3:])
        except Exception as error:
            error.add_note(name)
            raise
        finally:
            df.unpersist()


def test_cached_rows_do_not_change(make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(20).selectExpr("id % 3 as k", "id").write.parquet(path)
    groups = spark.read.parquet(path).groupBy("k").agg(F.count("*").alias("n"))
    large = groups.where("n > 6").cache()
    assert large.count() == 2
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()  # only the cached rows are left
    actual = results(make_env(), [large, large.select("n")])
    assert [len(rows) for rows in actual] == [2, 2]
    large.unpersist()


CTES = {
    "whole": "select * from x",
    "filtered": "select k from x where n > 100",
    "joined": "select a.k, b.n from x a join x b on a.k = b.k",
    "grouped": "select n, count(*) from x group by n",
}


def test_results_that_share_a_common_table_expression_are_those_of_spark(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any
) -> None:
    sums.createOrReplaceTempView("sums")
    query = "with x as (select k, sum(n) as n from sums group by k) "
    frames = [spark.sql(query + rest) for rest in CTES.values()]
    check(make_env(), [*frames, frames[0].groupBy("n").count(), frames[2].where("k > 3"), frames[2]])
    spark.catalog.dropTempView("sums")


def test_a_failing_result_fails_the_job(make_env: Callable[..., Environment], sums: Any) -> None:
    env = make_env()
    with pytest.raises(PenstockError):
        results(env, [sums, sums.select(F.expr("1 / (n - n)"))])
    check(env, [sums, sums.where("n > 100")])


# -- a path at two times -----------------------------------------------------------------------------------------


@pytest.fixture
def grown(spark: SparkSession, tmp_path: Path) -> Any:
    """Return two DataFrames of a path: before and after rows were appended."""
    path = str(tmp_path / "t")
    frames = []
    for rows in (10, 25):
        spark.range(rows).selectExpr("id % 3 as k", "id").write.mode("append").parquet(path)
        frames.append(spark.read.parquet(path))
    return frames


GROWN = {
    "groups": lambda df: df.groupBy("k").count(),
    "other functions": lambda df: df.groupBy("k").agg(F.sum("id"), F.count("*")),
    "distinct": lambda df: df.select("k").distinct(),
    "self join": lambda df: df.alias("a").join(df.alias("b"), "k").groupBy("k").count(),
    "windowed": lambda df: df.selectExpr("k", "count(*) over (partition by k) as n"),
}


@pytest.mark.parametrize("name", GROWN)
def test_results_of_a_path_before_and_after_an_append_are_those_of_spark(
    make_env: Callable[..., Environment], grown: Any, name: str
) -> None:
    before, after = map(GROWN[name], grown)
    check(make_env(), [before, after, before, after.where("k > 0")])
    check(make_env(**FORCED), [after, before])


@pytest.mark.parametrize("name", GROWN)
def test_a_result_can_read_a_path_before_and_after_an_append(
    make_env: Callable[..., Environment], grown: Any, name: str
) -> None:
    before, after = map(GROWN[name], grown)
    check(make_env(), [before.union(after)])
    check(make_env(), [after.unionAll(before), before])


# -- the current time ------------------------------------------------------------------------------------------------------

TIMES = [
    "current_timestamp()",
    "now()",
    "localtimestamp()",
    "cast(current_timestamp() as double)",
    "unix_micros(now())",
]


@pytest.mark.parametrize("time", TIMES)
def test_all_results_have_the_same_time(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any, time: str
) -> None:
    frames = [
        sums.selectExpr("k", f"{time} as t"),
        sums.where("n > 100").selectExpr("k", f"{time} as t"),
        spark.range(3).selectExpr("id", f"{time} as t"),
        sums.selectExpr("k", f"{time} as t").groupBy("t").count().select("count", "t"),
        spark.sql(f"select 1 as n, (select max({time}) from range(2)) as t"),
    ]
    assert len({row["t"] for rows in results(make_env(), frames) for row in rows}) == 1


def test_cached_rows_have_the_time_of_caching(
    make_env: Callable[..., Environment], spark: SparkSession, sums: Any
) -> None:
    cached = sums.selectExpr("k", "n", "current_timestamp() as t").cache()
    try:
        (cache_time,) = {row.t for row in cached.collect()}
        actual = results(
            make_env(), [cached, cached.where("n > 100"), sums.selectExpr("k", "current_timestamp() as now")]
        )
        assert {row.t for rows in actual[:2] for row in rows} == {cache_time}
        assert {row.now for row in actual[2]} != {cache_time}
    finally:
        cached.unpersist()


def test_a_result_has_a_single_time(make_env: Callable[..., Environment], sums: Any) -> None:
    df = sums.withColumn("t", F.current_timestamp()).join(sums.withColumn("u", F.current_timestamp()), "k")
    assert len({row[name] for row in make_env().collect(df) for name in ("t", "u")}) == 1
