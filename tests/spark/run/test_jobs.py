"""Waiting for running tasks, on real Spark."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run import jobs
from penstock.spark.run.jobs import running_stages, wait_for_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.alone
@pytest.mark.parametrize(("patience", "least", "most"), [(20.0, 0.5, 15.0), (0.3, 0.3, 0.9)])
def test_it_waits_until_no_task_runs(spark: SparkSession, patience: float, least: float, most: float) -> None:
    def slow(rows: Any) -> Any:
        time.sleep(2)
        return rows

    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).count()  # starts the Python workers
    job = threading.Thread(target=lambda: spark.sparkContext.parallelize(range(2), 2).mapPartitions(slow).count())
    job.start()
    time.sleep(1)
    began = time.monotonic()
    wait_for_tasks(Bridge(spark), patience)
    took = time.monotonic() - began
    assert least <= took <= most
    job.join()


def test_it_does_not_wait_without_tasks(spark: SparkSession) -> None:
    began = time.monotonic()
    wait_for_tasks(Bridge(spark), 60)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "error", [Py4JError("the status store has forgotten the stage"), AttributeError("Spark was stopped")], ids=str
)
def test_stages_that_spark_has_dropped(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Metrics of running stages are optional: a job does not fail without them."""

    def fail(*_: Any) -> Any:
        raise error

    assert running_stages(Bridge(spark), "no such group") == []
    monkeypatch.setattr(jobs, "stages_of", fail)
    assert running_stages(Bridge(spark), "a group") == []


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({}, None),
        ({"enabled": "true"}, None),
        ({"enabled": "true", "maxExecutors": "20"}, None),
        ({"enabled": "true", "maxExecutors": "infinity", "cores": "4"}, None),
        ({"enabled": "false", "maxExecutors": "20", "cores": "4"}, None),
        ({"enabled": "true", "maxExecutors": "20", "cores": "4"}, 80),
        ({"enabled": "true", "maxExecutors": "20", "cores": "5", "cpus": "2"}, 40),
    ],
)
def test_slots_to_come(settings: dict[str, str], slots: int | None) -> None:
    keys = {"cores": "spark.executor.cores", "cpus": "spark.task.cpus"}
    conf = {keys.get(key, f"spark.dynamicAllocation.{key}"): value for key, value in settings.items()}
    assert jobs.max_dynamic_slots(conf) == slots
