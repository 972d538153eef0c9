"""A session whose queries run as jobs, small ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.scheduler.job import RECENT
from tests.conftest import OFF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def no_jobs_of_other_tests() -> None:
    """The latest jobs are counted, and only so many are kept."""
    RECENT.clear()


@pytest.fixture
def served(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with every query of it run as a job that checks itself."""
    with penstock.enabled(spark, config=OFF) as session:
        yield session
