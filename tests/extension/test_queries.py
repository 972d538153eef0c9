"""TPC-H and TPC-DS as a program has them, by spark.sql(...).collect(): rows as plain Spark's, and run as jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.scheduler.job import HANDED_BACK, RECENT
from tests.conftest import OFF
from tests.equality import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ALWAYS = {1, 5, 9, 14, 23, 44, 51, 64, 72, 95}
"""Queries of TPC-DS that run always: each of another family, see tests/test_tpcds.py."""


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
        found = spark.sql(text).collect()
        (job,) = [job for job in RECENT if job not in before]
    assert_same_rows(found, expected)
    assert job.vertices
    assert [one.reason for one in job.decisions if one.chosen == HANDED_BACK] == []


@pytest.mark.parametrize("number", range(1, 23))
def test_tpch(spark: SparkSession, tpch: Any, number: int) -> None:
    assert_served_as_plain(spark, tpch[str(number)])


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[] if n in ALWAYS else pytest.mark.slow) for n in range(1, 100)]
)
def test_tpcds(spark: SparkSession, tpcds: Any, number: int) -> None:
    assert_served_as_plain(spark, tpcds[str(number)])
