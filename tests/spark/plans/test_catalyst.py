"""Properties read from Catalyst plans of a real Spark session; no query runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest
from pyspark.sql import functions as F

from penstock.spark.bridge.jvm import Bridge, children, class_name, items
from penstock.spark.plans import catalyst
from penstock.spark.plans.nodes import read_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def average(values: pd.Series) -> float:
    return float(values.mean())


# name: the aggregate, and the reason why its partial results cannot be merged
AGGREGATES = {
    "sums": (lambda: F.sum("id"), None),
    "distinct": (lambda: F.count_distinct("id"), None),
    "sketch": (lambda: F.approx_count_distinct("id"), None),
    "list": (lambda: F.collect_list("id"), "collect_list keeps every value"),
    "list by another name": (lambda: F.array_agg("id"), "collect_list keeps every value"),
    "set": (lambda: F.size(F.collect_set("id")), "collect_set keeps every distinct value"),
    "texts": (lambda: F.listagg(F.col("id").cast("string")), "listagg keeps every value"),
    "texts by another name": (lambda: F.string_agg(F.col("id").cast("string")), "listagg keeps every value"),
    "percentile": (lambda: F.percentile("id", F.lit(0.5)), "an exact percentile keeps every value"),
    "median": (lambda: F.median("id"), "an exact percentile keeps every value"),
    "mode": (lambda: F.mode("id"), "mode keeps every value"),
    "sketched percentile": (
        lambda: F.percentile_approx("id", 0.5),
        "the result of ApproximatePercentile may depend on the order of rows",
    ),
    "first": (lambda: F.first("id"), "first depends on the order of rows"),
    "any": (lambda: F.any_value("id"), "first depends on the order of rows"),
    "last": (lambda: F.last("id", ignorenulls=True), "last depends on the order of rows"),
    "ties": (lambda: F.max_by("id", F.lit(1)), "max_by depends on the order of rows"),
    "sums and a list": (
        lambda: F.concat_ws(",", F.sum("id").cast("string"), F.collect_list(F.col("id").cast("string"))),
        "collect_list keeps every value",
    ),
    "statistics": (lambda: F.corr("id", "id") + F.stddev("id") + F.bit_xor("id") + F.count_if(F.col("id") > 3), None),
    "true for all": (lambda: F.bool_and(F.col("id") > 3), None),
    "unsupported": (
        lambda: F.histogram_numeric("id", F.lit(3)),
        "the result of HistogramNumeric may depend on the order of rows",
    ),
    "Python": (lambda: F.pandas_udf(average, "double")("id"), "a Python function needs all rows of a group at once"),
    "in an expression whose text Spark truncates": (
        lambda: F.array(
            *(F.sum(column) for column in (F.col("id") + i for i in range(40))), F.element_at(F.collect_list("id"), 1)
        ),
        "collect_list keeps every value",
    ),
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_unmergeable_reason(spark: SparkSession, name: str) -> None:
    aggregate, reason = AGGREGATES[name]
    df = spark.range(9).groupBy((F.col("id") % 2).alias("k")).agg(aggregate().alias("a"))
    plan = read_plan(catalyst.optimized_plan(Bridge(spark), df))
    node = next(node for node in plan.walk() if node.name == "Aggregate")
    assert catalyst.unmergeable_reason(node) == reason


NAMES = ["a", "A#7", "x#1L", "", "two\nlines", "a.b", "T60000ms"]


@pytest.mark.parametrize("kind", ["bigint", "int", "string", "array<bigint>", "decimal(9,2)", "date"])
def test_ids_of_columns_are_the_keys_of_their_expressions(spark: SparkSession, kind: str) -> None:
    df = spark.createDataFrame([], ", ".join(f"`{name}` {kind}" for name in NAMES)).distinct()
    plan = catalyst.optimized_plan(Bridge(spark), df)
    expected = tuple(column.key for column in plan.output.columns())
    assert read_plan(plan).keys == expected
    assert len(set(expected)) == len(NAMES)


def test_class_names_are_those_of_the_classes(spark: SparkSession) -> None:
    df = spark.range(9).join(spark.range(3), "id").groupBy("id").count().orderBy("id")
    todo, seen = [df._jdf.queryExecution().optimizedPlan()], set()
    while todo:
        part = todo.pop()
        seen.add(class_name(part))
        assert class_name(part) == part.getClass().getSimpleName()
        todo += children(part)
        todo += items(part.expressions()) if "plans.logical" in part.getClass().getName() else []
    assert {"Join", "Aggregate", "Sort", "Range", "Alias"} <= seen


def test_class_name_of_an_ordinary_class(spark: SparkSession) -> None:
    assert class_name(spark._jvm.java.util.ArrayList()) == "ArrayList"
