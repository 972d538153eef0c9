"""The maximum width of rows that Spark sends to Python functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import SessionPool
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.plans.python_batches import LIMIT, BatchLimits, batch_limits, widest_row, without_measuring

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def widest(df: DataFrame) -> int | None:
    return widest_row(catalyst.optimized_plan(Bridge(df.sparkSession), df))


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("id", 9),
        ("id = 1", 2),
        ("tinyint(id)", 2),
        ("smallint(id)", 3),
        ("int(id)", 5),
        ("float(id)", 5),
        ("double(id)", 9),
        ("decimal(id)", 17),
        ("date_add(date'2026-01-01', int(id))", 5),
        ("timestamp_seconds(id)", 9),
        ("timestamp_seconds(id)::timestamp_ntz", 9),
        ("make_ym_interval(int(id), 1)", 5),
        ("make_dt_interval(int(id))", 9),
        ("string(id)", None),
        ("binary(string(id))", None),
        ("array(id)", None),
        ("struct(id)", None),
        ("map(id, id)", None),
        ("null", None),
        ("parse_json(string(id))", None),
    ],
)
@pytest.mark.parametrize("beside", [0, 8])
def test_columns(spark: SparkSession, column: str, expected: int | None, beside: int) -> None:
    columns = [f"{column} as c", *(["id as d"] if beside else [])]
    df = spark.range(3).selectExpr(*columns).mapInPandas(lambda frames: frames, "c string")
    assert widest(df) == (expected if expected is None or not beside else expected + beside + 1)


def test_a_row_without_columns_has_a_width(spark: SparkSession) -> None:
    assert widest(spark.range(3).select().mapInArrow(same, "c string")) == 1


def plus(column: pd.Series) -> pd.Series:  # type: ignore[type-arg]
    return column + 1


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda f: [f("id")], 9),
        (lambda f: [f(f("id"))], 9),
        (lambda f: [f("id"), f(F.col("id") * 2.0)], 18),
        (lambda f: [f("id"), f(F.col("id").cast("string"))], None),
        (lambda f: [f(f(F.col("id").cast("string")))], None),
    ],
    ids=["single", "nested", "two", "with a text", "nested with a text"],
)
def test_functions_of_columns(spark: SparkSession, make: Callable[[Any], list[Any]], expected: int | None) -> None:
    function = F.pandas_udf(plus, "double")
    assert widest(spark.range(3).select(*make(function))) == expected


def mean(column: pd.Series) -> float:  # type: ignore[type-arg]
    return float(column.mean())


BOUNDED: dict[str, tuple[str, int]] = {
    "no function": ("select id, count(*) as n from narrow group by id", 0),
    "a function of narrow rows": ("select narrow_plus(id) as id from narrow", 9),
    "much around it": (
        """
        select /*+ repartition(3) */ a.id, b.n, row_number() over (partition by n order by a.id) as r, explode(array(1, 2))
        from (select narrow_plus(id) as id from narrow) a
        join (select id, count(*) as n from narrow group by id) b on a.id = b.id
        where n > 0 union all select 1.0, 2L, 3, 4 order by id limit 7 offset 1
        """,
        9,
    ),
}
UNBOUNDED = {
    "an aggregate function": "select id % 3 as k, narrow_mean(id) as m from narrow group by id % 3",
    "a window function": "select narrow_mean(id) over (partition by id % 3) as m from narrow",
    "a function of rows of another kind": "select slow_plus(id) as id from narrow",
    "a function beside a text's": "select narrow_plus(id) as id from narrow union all select n from lengths",
    "a function above a text's": "select narrow_plus(n) as n from lengths",
    "a subquery": "select narrow_plus(id) as id, (select max(n) from lengths) as n from narrow",
    "a subquery in a condition": "select narrow_plus(id) as id from narrow where id < (select max(n) from lengths)",
    "cached rows": "select narrow_plus(n) as n from cached_numbers",
    "rows of an RDD": "select narrow_plus(id) as id from of_rdd",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[SparkSession]:
    spark.udf.register("narrow_plus", F.pandas_udf(plus, "double"))
    spark.udf.register("narrow_mean", F.pandas_udf(mean, "double"))
    spark.udf.register("slow_plus", F.udf(lambda x: x + 1.0, "double", useArrow=False))
    spark.range(9).createOrReplaceTempView("narrow")
    lengths = spark.range(9).selectExpr("repeat('x', 9) as text").mapInArrow(same, "n double")
    lengths.createOrReplaceTempView("lengths")
    cached = spark.range(9).selectExpr("double(id) as n").cache()
    cached.createOrReplaceTempView("cached_numbers")
    spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "id long").createOrReplaceTempView("of_rdd")
    yield spark
    cached.unpersist()
    for name in ("narrow", "lengths", "cached_numbers", "of_rdd"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("query", BOUNDED)
def test_plans_with_bounded_rows(tables: SparkSession, query: str) -> None:
    text, expected = BOUNDED[query]
    assert widest(tables.sql(text)) == expected


@pytest.mark.parametrize("query", UNBOUNDED)
def test_plans_with_unbounded_rows(tables: SparkSession, query: str) -> None:
    assert widest(tables.sql(UNBOUNDED[query])) is None


def test_functions_of_groups_are_unbounded(spark: SparkSession) -> None:
    df = spark.range(3).groupBy("id").applyInPandas(lambda frame: pd.DataFrame(frame), "id long")
    assert widest(df) is None


def test_materialized_rows_are_bounded(tables: SparkSession) -> None:
    bridge = Bridge(tables)
    plan = catalyst.optimized_plan(bridge, tables.sql("select narrow_plus(id) as id from of_rdd"))
    number = int(plan._handle.collectLeaves().head().rdd().id())
    assert widest_row(plan, {number}) == 9
    assert widest_row(plan, {number + 1}) is None


def test_limits_are_those_of_the_session(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    assert batch_limits(bridge.session) == BatchLimits(10_000, 64 << 20)
    user_settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": "7", LIMIT: "1k"}
    with with_settings(spark, user_settings):
        session = SessionPool(bridge, {}).take()
    assert batch_limits(session) == BatchLimits(7, 1024)
    assert batch_limits(bridge.session) == BatchLimits(10_000, 64 << 20)


def test_the_limit_of_a_session_and_a_thread_is_restored(spark: SparkSession) -> None:
    bridge, seen = Bridge(spark), []
    with with_settings(spark, {LIMIT: "1k"}):
        session = SessionPool(bridge, {}).take()
    limits = batch_limits(session)

    def record_limits() -> None:
        seen.append((batch_limits(session).bytes, spark.sparkContext.getLocalProperty(LIMIT)))

    with without_measuring(session, limits):
        record_limits()
    record_limits()
    spark.sparkContext.setLocalProperty(LIMIT, None)  # type: ignore[arg-type]
    assert seen == [((1 << 31) - 1, str((1 << 31) - 1)), (1024, "1024")]
