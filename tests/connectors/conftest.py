"""Fixtures of tests of tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """The names of a table that Penstock writes and of a table that Spark writes."""
    spark.sql("create database if not exists sinks")
    names = ("sinks.ours", "sinks.plain")
    for name in names:
        spark.sql(f"drop table if exists {name}")
    yield names
    for name in names:
        spark.sql(f"drop table if exists {name}")
    spark.sql("drop database sinks cascade")
