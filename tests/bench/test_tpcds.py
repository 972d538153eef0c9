"""TPC-DS queries return Spark's rows: some of each family in every run, all 99 in the full run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.equality import assert_as_plain_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


# Features that are planned differently, and the queries that have them.
FAMILIES = {
    "channels with separate joins, combined by UNION ALL": [2, 49, 56, 66, 75, 76],
    "ROLLUP: sums before and after rows are multiplied": [5, 14, 22, 36, 67, 77, 86],
    "INTERSECT and EXCEPT": [8, 14, 38, 87],
    "IN, EXISTS and NOT EXISTS, also with OR": [10, 16, 45, 69, 94, 95],
    "a correlated subquery over separate sums": [1, 6, 30, 41, 92],
    "a scalar subquery": [9, 23, 44, 54, 58],
    "windows, over sums and over windows": [12, 47, 51, 53, 70, 89, 98],
    "FULL OUTER JOIN": [51, 97],
    "LEFT OUTER JOIN, and rows without a match": [40, 72, 78, 93],
    "shared parts": [31, 39, 59, 74],
    "a star join of many tables": [13, 25, 85, 91],
    "several distinct counts, crossed": [28, 61, 88, 90],
    "narrow sums of cases": [43, 62, 99],
}
ALWAYS = {number for numbers in FAMILIES.values() for number in numbers}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, data: Path) -> Iterator[Any]:
    names = [file.stem for file in (data / "tpcds-0.1").glob("*.parquet")]
    for name in names:
        spark.read.parquet(str(data / "tpcds-0.1" / f"{name}.parquet")).createOrReplaceTempView(name)
    yield json.loads((data / "queries" / "tpcds.json").read_text())
    for name in names:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[] if n in ALWAYS else pytest.mark.slow) for n in range(1, 100)]
)
def test_a_query_returns_the_rows_of_spark(spark: SparkSession, env: Environment, tables: Any, number: Any) -> None:
    assert_as_plain_spark(env, spark.sql(tables[str(number)]))
    assert env.last_job.vertices
