"""Parallelism of steps with Python functions, checked with Spark's stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock import with_parallelism
from tests.support.equality import assert_as_plain_spark
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

ROWS = 60_000
MAXIMUM = "execution.batch.adaptive.auto__parallelism.max__parallelism"


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write some hundred KiB in two files; by their bytes, a single task of 16 MiB would suffice."""
    folder = str(tmp_path_factory.mktemp("numbers") / "n")
    rows = spark.range(0, ROWS, 1, 2).selectExpr("id", "id % 500 as k", "uuid(7) as text")
    rows.write.parquet(folder)
    return folder


def length(text):  # type: ignore[no-untyped-def]  # Spark would look at types
    return len(text)


def same(batches: Any) -> Iterator[Any]:
    yield from batches


def first(group: Any) -> Any:
    return group.head(1)


def longest(texts: pd.Series) -> int:  # type: ignore[type-arg]
    return int(pd.Series.max(texts.str.len()))


STEPS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "UDF over files": lambda df: df.where(F.udf(length, "long")("text") > 0),
    "mapInPandas over files": lambda df: df.mapInPandas(same, df.schema),
    "mapInArrow after an exchange": lambda df: (
        df.groupBy("id", "text").count().mapInArrow(same, "id long, text string, count long")
    ),
    "grouped map": lambda df: df.groupBy("k").applyInPandas(first, df.schema).select("k"),
}


@pytest.mark.parametrize("step", STEPS)
def test_steps_with_python_functions_use_all_cores(
    env: Environment, spark: SparkSession, numbers: str, step: str
) -> None:
    df = STEPS[step](spark.read.parquet(numbers))
    assert_as_plain_spark(env, df.groupBy().count())
    job = env.last_job
    reason = "it runs Python functions, and there are 2 cores"
    vertex = next(snapshot for snapshot in job.vertices if reason in snapshot.reason)
    assert vertex.parallelism == 2
    tasks = [stage.tasks for stage in stages(spark, job, vertex.vertex.name)]
    assert 2 in tasks, tasks


@pytest.mark.thorough
@pytest.mark.parametrize("operator", ["aggregate", "window"])
def test_python_aggregate_and_window_functions_use_all_cores(
    env: Environment, spark: SparkSession, numbers: str, operator: str
) -> None:
    """They are expressions of Spark's operators. No exchange follows, because a single task would suffice before it."""
    df, function = spark.read.parquet(numbers), F.pandas_udf(longest, "long")("text")
    if operator == "aggregate":
        lengths = df.groupBy("k").agg(function)
    else:
        lengths = df.select("id", function.over(Window.partitionBy("k")))
    assert_as_plain_spark(env, lengths)
    *_, last = env.last_job.vertices
    assert "it runs Python functions, and there are 2 cores" in last.reason
    assert last.tasks == 2


def test_without_python_functions_bytes_determine_the_parallelism(
    env: Environment, spark: SparkSession, numbers: str
) -> None:
    assert_as_plain_spark(env, spark.read.parquet(numbers).groupBy("k").count())
    assert [snapshot.parallelism for snapshot in env.last_job.vertices] == [1, 1]


def test_the_users_settings_take_precedence(
    env: Environment, make_env: Callable[..., Environment], spark: SparkSession, numbers: str
) -> None:
    df = spark.read.parquet(numbers)
    single = with_parallelism(df, 1).mapInPandas(same, df.schema).groupBy().count()
    assert_as_plain_spark(env, single)
    assert env.last_job.vertices[0].tasks == 1
    bounded = make_env(**{MAXIMUM: 1})
    assert_as_plain_spark(bounded, df.groupBy("k").applyInPandas(first, df.schema).groupBy().count())
    assert {snapshot.parallelism for snapshot in bounded.last_job.vertices} == {1}
