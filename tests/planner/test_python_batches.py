"""Batches for Python functions are those of plain Spark, measured or not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F

from penstock.connectors import DeltaSink, FileSink, JdbcSink
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.plans.python_batches import LIMIT, NO_LIMIT
from tests.support.equality import assert_same_rows
from tests.support.services import Sqlite

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock import Environment


def rows_of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"rows": [batch.num_rows], "bytes": [batch.nbytes]})


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def limit_seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    seen = None if context is None else context.getLocalProperty(LIMIT)
    for batch in batches:
        yield pa.record_batch({"seen": pa.array([seen] * batch.num_rows, pa.string())})


def plus(column: pd.Series) -> pd.Series:  # type: ignore[type-arg]
    return column + 1


def count_batches(column: str) -> Column:
    def count(batches: Any) -> Any:
        return sum(1 for _ in batches)

    count.__annotations__ = {
        "batches": Iterator[pd.Series],
        "return": int,
    }  # from which Spark infers the kind of the function
    return F.pandas_udf(count, "long")(column)


BATCH_COLUMNS = "rows long, bytes long"


@pytest.mark.parametrize("most_bytes", ["64m", "20000b", "400b"])
@pytest.mark.parametrize("most_rows", ["10000", "1000", "0"])
@pytest.mark.parametrize(
    "columns", [[], ["id"], ["id", "id % 3 = 0", "id / 2"], ["id", "repeat('x', int(id % 40))"]], ids=len
)
def test_batches_are_those_of_plain_spark(
    spark: SparkSession, make_env: Callable[..., Environment], columns: list[str], most_rows: str, most_bytes: str
) -> None:
    limits = {"maxBytesPerBatch": most_bytes, "maxRecordsPerBatch": most_rows}
    with with_settings(spark, {f"spark.sql.execution.arrow.{name}": value for name, value in limits.items()}):
        df = spark.range(0, 2500, 1, 2).selectExpr(*columns).mapInArrow(rows_of_batches, BATCH_COLUMNS)
        assert_same_rows(make_env().collect(df), df.collect())


def texts(spark: SparkSession, tasks: int = 2) -> DataFrame:
    return spark.range(0, 3000, 1, tasks).selectExpr("id % 3 as k", "repeat('x', 1000) as text")


def text_batches(spark: SparkSession, tasks: int = 2) -> DataFrame:
    return texts(spark, tasks).mapInArrow(rows_of_batches, BATCH_COLUMNS)


def counted(spark: SparkSession) -> DataFrame:
    return texts(spark).groupBy("k").agg(count_batches("text").alias("n"))


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, 30_000, 1, 2).mapInArrow(same, "id long")


def above_an_aggregate_function(spark: SparkSession) -> DataFrame:
    return counted(spark).mapInArrow(same, "k long, n long").repartition(2, "k")


def below_an_aggregate_function(spark: SparkSession) -> DataFrame:
    below: Any = F.pandas_udf(plus, "long")
    return texts(spark).select(below("k").alias("k"), "text").groupBy("k").agg(count_batches("text").alias("n"))


def in_an_earlier_step(spark: SparkSession) -> DataFrame:
    counts = numbers(spark).groupBy((F.col("id") % 3).alias("k")).count()
    return counts.join(texts(spark), "k").groupBy("k").agg(count_batches("text").alias("n"))


def above_cached_rows(spark: SparkSession) -> DataFrame:
    return text_batches(spark).cache().mapInArrow(same, BATCH_COLUMNS).repartition(2, "rows")


def beside_a_subquery(spark: SparkSession) -> DataFrame:
    text_batches(spark).createOrReplaceTempView("batches")
    numbers(spark).createOrReplaceTempView("numbers")
    return spark.sql("select id, (select max(rows) from batches) as most from numbers where id < 5")


def with_a_step_that_has_not_run(spark: SparkSession) -> DataFrame:
    """Return a plan that Spark runs in the tasks of its last step, as a single task reads the texts."""
    return (
        text_batches(spark, tasks=1)
        .groupBy("rows")
        .count()
        .mapInArrow(same, "rows long, count long")
        .repartition(2, "rows")
    )


@pytest.mark.parametrize(
    "make",
    [
        above_an_aggregate_function,
        below_an_aggregate_function,
        in_an_earlier_step,
        above_cached_rows,
        beside_a_subquery,
        with_a_step_that_has_not_run,
    ],
)
def test_batches_of_texts_are_unchanged_next_to_functions_of_numbers(
    spark: SparkSession, make_env: Callable[..., Environment], make: Callable[[SparkSession], DataFrame]
) -> None:
    with with_settings(spark, {LIMIT: "400000b"}):
        try:
            rows = make_env().collect(make(spark))
            spark.catalog.clearCache()
            assert_same_rows(rows, make(spark).collect())
        finally:
            spark.catalog.clearCache()


def test_a_users_cache_has_the_batches_of_plain_spark(
    spark: SparkSession, make_env: Callable[..., Environment]
) -> None:
    with with_settings(spark, {LIMIT: "400000b"}):
        expected = text_batches(spark).collect()
        cached = text_batches(spark).cache()
        try:
            make_env().collect(cached.mapInArrow(same, BATCH_COLUMNS).repartition(2, "rows"))
            assert_same_rows(cached.collect(), expected)
        finally:
            cached.unpersist()


def seen_at_the_end(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, 1, 2).mapInArrow(limit_seen, "seen string")


def seen_before_an_exchange(spark: SparkSession) -> DataFrame:
    return seen_at_the_end(spark).groupBy("seen").count()


def seen_after_steps_of_numbers(spark: SparkSession) -> DataFrame:
    return numbers(spark).groupBy((F.col("id") % 3).alias("k")).count().mapInArrow(limit_seen, "seen string")


def seen_with_texts(spark: SparkSession) -> DataFrame:
    return texts(spark).mapInArrow(limit_seen, "seen string")


def seen_after_a_step_of_texts(spark: SparkSession) -> DataFrame:
    """Return a plan whose last step has numbers; if files are lost, its tasks rerun the step with texts."""
    return text_batches(spark).groupBy("rows").count().mapInArrow(limit_seen, "seen string")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (seen_at_the_end, str(NO_LIMIT)),
        (seen_before_an_exchange, str(NO_LIMIT)),
        (seen_after_steps_of_numbers, str(NO_LIMIT)),
        (seen_with_texts, "300000b"),
        (seen_after_a_step_of_texts, "300000b"),
    ],
)
def test_tasks_have_no_byte_limit_for_batches_of_numbers(
    spark: SparkSession,
    make_env: Callable[..., Environment],
    make: Callable[[SparkSession], DataFrame],
    expected: str,
) -> None:
    with with_settings(spark, {LIMIT: "300000b"}):
        assert {row.seen for row in make_env().collect(make(spark))} == {expected}


def in_files(folder: Path) -> set[str]:
    return set(pq.read_table(folder).column("seen").to_pylist())


def in_delta(folder: Path) -> set[str]:
    return set(deltalake.DeltaTable(str(folder)).to_pyarrow_table().column("seen").to_pylist())


def in_sqlite(file: Path) -> set[str]:
    with sqlite3.connect(file) as database:
        return {seen for (seen,) in database.execute("select seen from t")}


@pytest.mark.parametrize(
    ("sink", "read", "expected"),
    [
        (lambda path: FileSink(path), in_files, str(NO_LIMIT)),
        (lambda path: DeltaSink(path), in_delta, str(NO_LIMIT)),
        (lambda path: DeltaSink(path, mode="upsert", key=["seen"]), in_delta, "300000"),
        (lambda path: JdbcSink(f"jdbc:sqlite:{path}", "t", properties=Sqlite.properties), in_sqlite, str(NO_LIMIT)),
    ],
    ids=["files", "delta", "delta upsert", "jdbc"],
)
def test_writing_tasks_have_no_byte_limit_unless_the_sink_calls_python(
    spark: SparkSession, make_env: Callable[..., Environment], tmp_path: Path, sink: Any, read: Any, expected: str
) -> None:
    """The limit applies if the tasks of the sink may call Python themselves."""
    env, path = make_env(), tmp_path / "seen"
    with with_settings(spark, {LIMIT: "300000"}):
        env.write(spark.range(1).mapInArrow(limit_seen, "seen string"), sink(str(path)))
        env.execute()
    assert read(path) == {expected}


@pytest.mark.parametrize("has_function", [True, False], ids=["a function of texts", "an aggregate function of texts"])
def test_a_reused_session_has_the_byte_limit_again(
    spark: SparkSession, make_env: Callable[..., Environment], has_function: bool
) -> None:
    """The first step has narrow rows and is not measured, the second step has texts."""
    with with_settings(spark, {LIMIT: "400000b"}):
        narrow = numbers(spark).repartition(2, F.col("id") % 2).selectExpr("repeat('x', 60 + int(id % 9)) as text")
        if has_function:
            df = narrow.mapInArrow(rows_of_batches, BATCH_COLUMNS).groupBy().agg(F.count("*"), F.max("rows") < 10_000)
        else:
            df = narrow.groupBy().agg(count_batches("text"), F.lit(True))
        rows: Any = make_env().collect(df)
        assert_same_rows(rows, df.collect())
        assert rows[0][0] > 1
        assert rows[0][1] is True
