"""Values that depend on the position or order of rows are the same as in plain Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.entry.results import ResultSink
from penstock.planner.outputs import Output
from tests.entry.test_several_results import check as check_all
from tests.planner.drafts import steps_of
from tests.support.equality import assert_as_plain_spark
from tests.support.outcomes import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
SKEW = "table.optimizer.skewed__join__optimization"
SHUFFLED = {VOLUME: "1 kb", "table.optimizer.join.broadcast__threshold": "-1"}
SPLIT = SHUFFLED | {f"{SKEW}.strategy": "FORCED", f"{SKEW}.skewed__threshold": "1 b", f"{SKEW}.skewed__factor": 0.1}
CONFIGS = {"default": {}, "all split": SPLIT}


@pytest.fixture(scope="module")
def t(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows in files of different sizes, with a hot key, and a column `t` in another order than the rows."""
    path = str(tmp_path_factory.mktemp("positions") / "t")
    columns = (
        "if(id % 3 < 2, 1, id % 40) as k",
        "id",
        "(id * 7919) % 6007 as t",
        "concat('row ', id) as s",
        "id % 9 as w",
    )
    df = spark.range(0, 6000, 1, 4).selectExpr(*columns)
    df.where("id < 500").coalesce(1).write.parquet(path)
    df.where("id >= 500").write.mode("append").parquet(path)
    return spark.read.parquet(path)


def few(t: Any) -> Any:
    return t.select(F.col("w").alias("k"), "s").dropDuplicates(["k"])


def numbered(df: DataFrame, name: str = "n") -> Any:
    return df.withColumn(name, F.monotonically_increasing_id())


def zipped(left: Any, right: Any) -> Any:
    return numbered(left).join(numbered(right), "n")


def best(df: DataFrame) -> Any:
    return df.repartition("k").sortWithinPartitions("k", "t")


POSITIONS = {
    "two sets of columns zipped": lambda t: zipped(t.select("id"), t.select("s")),
    "all columns zipped with another": lambda t: zipped(t, t.select(F.col("t").alias("u"))),
    "both inputs filtered": lambda t: zipped(t.where("w > 3").select("id"), t.where("w > 3").select("s")),
    "numbers": lambda t: numbered(t.select("id")),
    "task ids": lambda t: t.select("id", F.spark_partition_id()),
    "groups by task": lambda t: t.groupBy(F.spark_partition_id().alias("p")).agg(F.sum("id")),
    "rand": lambda t: t.select("id", F.rand(5)),
    "rand without a seed": lambda t: t.select("id", F.rand()),
    "randn": lambda t: t.select("s", F.randn(5)),
    "rand in a filter": lambda t: t.where(F.rand(3) < 0.3).groupBy("k").count(),
    "rand in a sum": lambda t: t.withColumn("r", F.rand(9)).groupBy("k").agg(F.sum("r"), F.count("*")),
    "rand in a sort": lambda t: t.orderBy(F.rand(4)).limit(7),
    "rand as a salt": lambda t: t.withColumn("salt", (F.rand(1) * 4).cast("int")).groupBy("k", "salt").count(),
    "uuid": lambda t: t.select("id", F.expr("uuid()")),
    "shuffled arrays": lambda t: t.select("id", F.shuffle(F.array("k", "id", "t", "w"))),
    "sample": lambda t: t.sample(0.2, seed=3),
    "sample with replacement": lambda t: t.select("id").sample(True, 0.5, 3),
    "sample by key": lambda t: t.sampleBy("w", {1: 0.5, 2: 0.1}, seed=4),
    "split at random": lambda t: t.select("id").randomSplit([0.3, 0.7], 5)[0],
    "a sample joined": lambda t: t.sample(0.3, seed=8).join(few(t), "k").groupBy("k").count(),
    "file names": lambda t: t.groupBy(F.input_file_name()).count(),
    "file blocks": lambda t: t.select("id", F.expr("input_file_block_start()"), F.expr("input_file_block_length()")),
    "rows counted by a window": lambda t: numbered(t.select("id", "k")).selectExpr(
        "id", "row_number() over (order by n) as r"
    ),
    "numbers after a sort": lambda t: numbered(t.orderBy("t").select("id")),
    "numbers after a sum": lambda t: numbered(t.groupBy("w").agg(F.sum("id"))).select("n"),
    "task ids after a range exchange": lambda t: (
        t.where("id % 20 = 0").repartitionByRange(5, "t").select("id", F.spark_partition_id())
    ),
    "task ids after a hash exchange": lambda t: t.repartition(5, "k").select("id", F.spark_partition_id()),
    "task ids after a round-robin exchange": lambda t: (
        t.select("id").repartition(5).select("id", F.spark_partition_id())
    ),
    "task ids after an exchange by key": lambda t: (
        t.repartition("k").groupBy("k", F.spark_partition_id().alias("p")).count()
    ),
    "task ids after a coalesce": lambda t: t.coalesce(2).select("id", F.spark_partition_id()),
    "task ids after a union": lambda t: t.select("id").union(t.select("t")).select("id", F.spark_partition_id()),
    "rand after a join": lambda t: t.join(few(t), "k").select("id", F.rand(2)),
    "numbers of rows in memory": lambda t: numbered(t.sparkSession.range(0, 50, 1, 3).select("id")),
    "numbers of exploded rows": lambda t: numbered(t.select("id", F.explode(F.array("k", "w")))),
    "numbers of a range of rows in memory": lambda t: numbered(
        t.sparkSession.range(0, 200, 1, 2).repartitionByRange(3, "id")
    ),
    "numbers in a subquery": lambda t: t.sparkSession.sql(
        "select * from positions where id < (select avg(n) from (select monotonically_increasing_id() n from positions))"
    ),
}


@pytest.fixture(autouse=True)
def view(t: Any) -> Iterator[None]:
    t.createOrReplaceTempView("positions")
    yield
    t.sparkSession.catalog.dropTempView("positions")


def check(env: Environment, df: DataFrame) -> Any:
    assert_as_plain_spark(env, df)
    return env.last_job


@pytest.mark.parametrize("name", mostly_slow(POSITIONS, 3))
def test_values_that_depend_on_tasks_are_those_of_spark(
    make_env: Callable[..., Environment], t: Any, name: Any
) -> None:
    check(make_env(**SPLIT), POSITIONS[name](t))


@pytest.mark.thorough
def test_values_that_depend_on_tasks_are_those_of_spark_with_several_results(
    make_env: Callable[..., Environment], t: Any
) -> None:
    groups = t.groupBy("k").agg(F.count("*").alias("n"))
    frames = [
        groups,
        groups.where("n > 5"),
        numbered(t.select("id")),
        t.select("id", F.rand(5)),
        t.select("s", F.rand(5)),
    ]
    check_all(make_env(**SHUFFLED), [*frames, groups.sample(0.5, seed=1)])


@pytest.mark.thorough
def test_values_that_depend_on_an_order_are_those_of_spark_with_shared_aggregates(
    make_env: Callable[..., Environment], t: Any
) -> None:
    sums = [t.groupBy("k").agg((F.sum("id") * times + F.max("t")).alias("x")) for times in (1, 2)]
    frames = [sums[0].where("x > 9"), sums[1].where("x > 9"), best(t).groupBy("k").agg(F.first("id"))]
    env = make_env(**SHUFFLED)
    check_all(env, [*frames, best(t).limit(3), best(t).limit(3)])
    assert sum("Spark's own query" in vertex.vertex.name for vertex in env.last_job.vertices) == 3


ORDERED = {
    "distinct keys": lambda t: best(t).dropDuplicates(["k"]),
    "first": lambda t: best(t).groupBy("k").agg(F.first("t"), F.first("id"), F.count("*")),
    "last": lambda t: best(t).groupBy("k").agg(F.last("t"), F.last("s")),
    "any": lambda t: best(t).groupBy("k").agg(F.any_value("id")),
    "lists": lambda t: best(t).groupBy("k").agg(F.collect_list("id")),
    "ties of max_by": lambda t: best(t).groupBy("k").agg(F.max_by("id", "w"), F.min_by("id", "w")),
    "first by several keys": lambda t: best(t).groupBy("k", "w").agg(F.first("id")),
    "after projections and filters": lambda t: (
        best(t).where("w > 1").selectExpr("k", "id + 1 as i").groupBy("k").agg(F.first("i"))
    ),
    "numbers": lambda t: numbered(best(t).select("id")),
    "limits": lambda t: best(t).select("id").limit(9),
    "groups in Python": lambda t: best(t).groupBy("k").applyInPandas(lambda g: g.head(1), t.schema),
    "tasks in Python": lambda t: (
        best(t).select("id").mapInPandas(lambda frames: (frame.head(1) for frame in frames), "id long")
    ),
    "a union": lambda t: best(t).union(best(t.where("w = 2"))).groupBy("k").agg(F.first("id")),
    "without a repartition": lambda t: t.sortWithinPartitions("t").groupBy("k").agg(F.first("t")),
    "windows of ties": lambda t: best(t).selectExpr("id", "row_number() over (partition by k order by w) as r"),
    "order-independent aggregates": lambda t: best(t).groupBy("k").agg(F.sum("id"), F.max("t")),
    "a global sort": lambda t: t.orderBy("t").dropDuplicates(["k"]),
    "a global sort and lists": lambda t: t.orderBy("t").groupBy("k").agg(F.collect_list("id"), F.first("t")),
}


@pytest.mark.parametrize("config", mostly_slow(CONFIGS))
@pytest.mark.parametrize("name", ORDERED)
def test_values_that_depend_on_an_order_are_those_of_spark(
    make_env: Callable[..., Environment], t: Any, name: str, config: Any
) -> None:
    check(make_env(**CONFIGS[config]), ORDERED[name](t))


# -- functions that are not deterministic --------------------------------------------------------------------------

TWICE = {
    "a relation of a query joined with itself": "with x as (select id, dice(id) r from positions) select count(*) from x a join x b on a.id = b.id and a.r = b.r",
    "three times": "with x as (select id, dice(id) r from positions) select count(*) from x a join x b on a.id = b.id and a.r = b.r join x c on a.id = c.id and a.r = c.r",
    "union of both": "with x as (select id, dice(id) r from positions) select count(distinct id, r) from (select * from x union all select * from x)",
    "difference of both": "with x as (select id, dice(id) r from positions) select count(*) from (select * from x except select * from x)",
    "in another relation": "with x as (select id, dice(id) r from positions), y as (select * from x where id > 9) select count(*) from x join y on x.r = y.r",
    "filtered twice": "with x as (select id, dice(id) r from positions) select count(*) from (select r from x where id % 2 = 0) a left anti join x b on a.r = b.r",
    "grouped": "with x as (select k, max(r) r from (select id % 10 as k, dice(id) r from positions) group by k) select count(*) from x a join x b on a.r = b.r",
    "rand": "with x as (select id, rand() r from positions) select count(*) from x a join x b on a.id = b.id and a.r = b.r",
    "uuid": "with x as (select id, uuid() r from positions) select count(*) from x a join x b on a.r = b.r",
    "numbers": "with x as (select id, monotonically_increasing_id() r from positions) select count(*), max(a.id - b.id) from x a join x b on a.r = b.r",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", TWICE)
def test_a_nondeterministic_relation_read_twice_returns_the_rows_of_spark(
    make_env: Callable[..., Environment], spark: SparkSession, t: Any, name: str
) -> None:
    dice = F.udf(lambda _: str(uuid.uuid4()), "string").asNondeterministic()
    spark.udf.register("dice", dice)
    check(make_env(**SHUFFLED), spark.sql(TWICE[name]))


def test_functions_of_a_repeated_frame_are_called_as_often_as_in_spark(
    make_env: Callable[..., Environment], t: Any
) -> None:
    dice = F.udf(lambda _: str(uuid.uuid4()), "string").asNondeterministic()
    rolls = t.select("id", dice("id").alias("r"))
    twice = rolls.alias("a").join(rolls.alias("b"), F.expr("a.id = b.id")).where("a.r = b.r").groupBy().count()
    check(make_env(), twice)
    alone = make_env()
    assert len({row.r for row in alone.collect(rolls.withColumn("w", F.lit(1)))}) == 6000
    assert all(vertex.vertex.name != "Source: Spark's own query" for vertex in alone.last_job.vertices)


# -- queries that fall back to Spark ------------------------------------------------------------------------

NATIVE = {
    "zipped": lambda t: zipped(t.select("id"), t.select("s")),
    "a salt": lambda t: t.withColumn("salt", F.rand(1)).groupBy("k").agg(F.max("salt")),
    "first": lambda t: t.groupBy("k").agg(F.first("id")),
    "an order without effect": lambda t: best(t).groupBy("k").agg(F.sum("id")),
    "an order of the result": best,
    "distinct keys": lambda t: t.dropDuplicates(["k"]),
    "cached": lambda t: t.select("id").limit(5),
}
FALLBACKS = {
    "a salt after a join": lambda t: t.join(few(t), "k").withColumn("salt", F.rand(1)),
    "first in an order": lambda t: best(t).groupBy("k").agg(F.first("id")),
    "a limit of an order": lambda t: best(t).limit(1),
    "a nondeterministic function after a join": lambda t: t.select(
        "k", F.udf(hash, "int").asNondeterministic()("s")
    ).join(few(t), "k"),
}


@pytest.mark.parametrize("name", [*NATIVE, *FALLBACKS])
def test_only_queries_that_depend_on_positions_fall_back_to_spark(
    make_env: Callable[..., Environment], t: Any, name: Any
) -> None:
    env, df = make_env(), (NATIVE | FALLBACKS)[name](t)
    plan = steps_of(env, [Output(df, ResultSink("x", lambda rows: rows))])
    assert ("Source: Spark's own query" in {node.name for node in plan.graph}) is (name in FALLBACKS)
