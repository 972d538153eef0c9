"""How wide the rows are that Spark gives to Python functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F

from penstock.spark import catalyst
from penstock.spark.dataframes import with_settings
from penstock.spark.jvm import Bridge
from penstock.spark.plans import read_plan
from penstock.spark.python_batches import BatchLimits, arrow_width, batch_limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def width(df: DataFrame, name: str) -> int | None:
    plan = read_plan(catalyst.optimized_plan(Bridge(df.sparkSession), df))
    return arrow_width(next(node for node in plan.walk() if node.name == name))


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
    assert width(df, "MapInPandas") == (expected if expected is None or not beside else expected + beside + 1)


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
    ids=["one", "one after the other", "two", "one with a text", "a text below"],
)
def test_functions_of_columns(spark: SparkSession, make: Callable[[Any], list[Any]], expected: int | None) -> None:
    function = F.pandas_udf(plus, "double")
    assert width(spark.range(3).select(*make(function)), "ArrowEvalPython") == expected


def test_other_operators_are_not_known(spark: SparkSession) -> None:
    df = spark.range(3).groupBy("id").applyInPandas(lambda frame: pd.DataFrame(frame), "id long")
    assert width(df, "FlatMapGroupsInPandas") is None


def test_limits(spark: SparkSession) -> None:
    assert batch_limits(Bridge(spark)) == BatchLimits(10_000, 64 << 20)
    of_the_user = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
        "spark.sql.execution.arrow.maxBytesPerBatch": "1k",
    }
    with with_settings(spark, of_the_user):
        assert batch_limits(Bridge(spark)) == BatchLimits(7, 1024)
