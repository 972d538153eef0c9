"""Vertices have the user's job group, tags, pool and description, and are cancelled with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.scheduler.job import RECENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

_LONG = 60.0


def slow(spark: SparkSession) -> DataFrame:
    """Return a query whose first stage takes a minute."""
    wait = F.udf(lambda value: time.sleep(_LONG) or value, "long")
    return spark.range(4).select(wait("id").alias("id")).groupBy((F.col("id") % 3).alias("k")).count()


def active(spark: SparkSession) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


CANCELS: dict[str, tuple[Callable[[SparkSession], Any], Callable[[SparkSession], Any]]] = {
    "job group": (
        lambda spark: spark.sparkContext.setJobGroup("mine", "my query", interruptOnCancel=True),
        lambda spark: spark.sparkContext.cancelJobGroup("mine"),
    ),
    "tag": (
        lambda spark: spark.sparkContext.addJobTag("mine"),
        lambda spark: spark.sparkContext.cancelJobsWithTag("mine"),
    ),
    "all jobs": (lambda _: None, lambda spark: spark.sparkContext.cancelAllJobs()),
}


@pytest.mark.parametrize("way", CANCELS, ids=str)
def test_a_query_that_is_cancelled_ends_within_two_seconds(served: SparkSession, way: str) -> None:
    name, cancel = CANCELS[way]
    errors: list[BaseException] = []

    def run() -> None:
        name(served)
        try:
            slow(served).collect()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert wait_until(lambda: active(served), 20)
    time.sleep(0.5)
    cancel(served)
    thread.join(2)
    assert not thread.is_alive()
    assert "cancel" in str(errors[0]).lower()
    assert wait_until(lambda: not active(served), 2)
    assert RECENT[-1].ended is not None


@pytest.mark.thorough
def test_vertices_have_the_groups_tags_pool_and_description_of_the_user(served: SparkSession) -> None:
    context = served.sparkContext
    seen: dict[str, str | None] = {}
    keys = ("spark.jobGroup.id", "spark.scheduler.pool", "spark.job.tags", "my.own")

    def check_properties(value: int) -> int:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        missing = [key for key in keys if not task.getLocalProperty(key)]
        if missing:
            raise ValueError(f"missing: {missing}")
        return value

    def run() -> None:
        context.setJobGroup("mine", "my query")
        context.setLocalProperty("spark.scheduler.pool", "slow pool")
        context.setLocalProperty("my.own", "1")
        context.addJobTag("tagged")
        rows = (
            served.range(10)
            .select(F.udf(lambda value: check_properties(value), "long")("id").alias("id"))
            .groupBy("id")
            .count()
            .collect()
        )
        seen["rows"] = str(len(rows))
        seen["group"] = context.getLocalProperty("spark.jobGroup.id")
        seen["description"] = context.getLocalProperty("spark.job.description")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == {"rows": "10", "group": "mine", "description": "my query"}
    assert RECENT[-1].name == "my query"
    assert context.statusTracker().getJobIdsForGroup("mine")


def test_two_threads_build_and_read_the_same_cache(served: SparkSession) -> None:
    df = served.range(1000).groupBy((F.col("id") % 7).alias("k")).agg(F.sum("id").alias("v")).cache()
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(sorted(df.collect()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    df.unpersist(blocking=True)
    assert len(results) == 2
    assert results[0] == results[1]
    assert len(results[0]) == 7
