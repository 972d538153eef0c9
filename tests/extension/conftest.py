"""A session whose queries all run as jobs, including small ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.scheduler.job import RECENT
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def no_jobs_of_other_tests() -> None:
    RECENT.clear()


@pytest.fixture
def served(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with every query run as a job that verifies itself."""
    with penstock.enabled(spark, config=OFF) as session:
        yield session
