"""TPC-DS queries give the same rows as plain Spark: some of every family always, all 99 in the full run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.equality import assert_as_plain_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock import Environment


# What is planned in a way of its own, and queries that have it.
FAMILIES = {
    "channels put together by UNION ALL, each with joins of its own": [2, 49, 56, 66, 75, 76],
    "ROLLUP: sums before rows are multiplied, and after": [5, 14, 22, 36, 67, 77, 86],
    "INTERSECT and EXCEPT": [8, 14, 38, 87],
    "IN, EXISTS and NOT EXISTS, with OR too": [10, 16, 45, 69, 94, 95],
    "a subquery for each row, over sums of its own": [1, 6, 30, 41, 92],
    "one value of a subquery": [9, 23, 44, 54, 58],
    "windows, over sums and over windows": [12, 47, 51, 53, 70, 89, 98],
    "FULL OUTER JOIN": [51, 97],
    "LEFT OUTER JOIN, and what only one side has": [40, 72, 78, 93],
    "parts that are used several times": [31, 39, 59, 74],
    "many tables around one": [13, 25, 85, 91],
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
def test_same_rows(spark: SparkSession, env: Environment, tables: Any, number: Any) -> None:
    assert_as_plain_spark(env, spark.sql(tables[str(number)]))
    assert env.last_job.vertices
