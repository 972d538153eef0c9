"""Fixtures of the tests of expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def views(spark: SparkSession) -> Iterator[None]:
    """Drop the views of `Comparison` after the test."""
    yield
    for name in ("t", "keys"):
        spark.catalog.dropTempView(name)
