"""TPC-H and TPC-DS with spark.sql(...).collect(): the rows of plain Spark, run as jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from tests.conftest import OFF
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALWAYS = {1, 5, 9, 14, 23, 44, 51, 64, 72, 95}
"""TPC-DS queries that always run, each of another family; see tests/bench/test_tpcds.py."""


def views(spark: SparkSession, data: Path, name: str) -> Iterator[Any]:
    files = sorted((data / f"{name}-0.1").glob("*.parquet"))
    for file in files:
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    yield json.loads((data / "queries" / f"{name}.json").read_text())
    for file in files:
        spark.catalog.dropTempView(file.stem)


@pytest.fixture(scope="module")
def tpch(spark: SparkSession, data: Path) -> Iterator[Any]:
    yield from views(spark, data, "tpch")


@pytest.fixture(scope="module")
def tpcds(spark: SparkSession, data: Path) -> Iterator[Any]:
    yield from views(spark, data, "tpcds")


def assert_served_as_plain(spark: SparkSession, text: str) -> None:
    expected = spark.sql(text).collect()
    with penstock.enabled(spark, config=OFF):
        before = list(RECENT)
        actual = spark.sql(text).collect()
        (job,) = [job for job in RECENT if job not in before]
    assert_same_rows(actual, expected)
    assert job.vertices
    assert [decision.reason for decision in job.decisions if decision.chosen == RUN_BY_SPARK] == []


@pytest.mark.parametrize("number", range(1, 23))
def test_tpch(spark: SparkSession, tpch: Any, number: int) -> None:
    assert_served_as_plain(spark, tpch[str(number)])


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[] if n in ALWAYS else pytest.mark.slow) for n in range(1, 100)]
)
def test_tpcds(spark: SparkSession, tpcds: Any, number: int) -> None:
    assert_served_as_plain(spark, tpcds[str(number)])
