"""Fixtures of the tests of expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.spark.plans.dataframes import with_settings
from tests.support.native import compute_all_natively, without_python_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def views(spark: SparkSession) -> Iterator[None]:
    """Drop the views of `Comparison` after the test."""
    yield
    for name in ("t", "keys"):
        spark.catalog.dropTempView(name)


@pytest.fixture(scope="module", params=[True, False], ids=["ansi", "not ansi"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """Let DuckDB compute everything that it can, in both ANSI modes and a time zone whose offset changes."""
    settings = {
        "spark.sql.ansi.enabled": str(request.param).lower(),
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    with with_settings(spark, settings), pytest.MonkeyPatch.context() as patch:
        compute_all_natively(patch)
        without_python_types(patch)
        yield spark
