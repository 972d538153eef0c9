"""JVM objects of finished jobs are freed once the driver's heap fills, even if Python's collector is off."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import JavaObject

from penstock.spark.bridge import garbage_collection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.alone
_LAST_JOB = 250
"""More than the objects of a job (140): the last job may still be returning when earlier ones are freed."""


@pytest.fixture(autouse=True)
def _without_pythons_own_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage_collection, "_DELAY_SECONDS", 0.5)  # time to return from a job on a busy machine
    monkeypatch.setattr(garbage_collection, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(garbage_collection, "_last_collection", 0.0)  # an earlier collection may have delayed the next
    monkeypatch.setattr(garbage_collection, "_next_collection", 0.0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def handles() -> int:
    """Return the number of JVM objects that Python references."""
    return sum(type(candidate) is JavaObject for candidate in gc.get_objects())


def left_by_three_jobs(spark: SparkSession, env: Environment) -> int:
    """Return the number of JVM objects that three jobs leave after the collection."""
    env.collect(spark.range(10).groupBy().count())
    gc.collect()
    before = handles()
    for _ in range(3):
        env.collect(spark.range(1000).selectExpr("id % 7 as k").groupBy("k").count())
    deadline = time.monotonic() + 5
    while handles() > before + _LAST_JOB and time.monotonic() < deadline:
        time.sleep(0.1)
    return handles() - before


@pytest.mark.parametrize(("filled", "is_freed", "attempts"), [(0.0, True, 8), (1.0, False, 2)])
def test_jobs_are_freed_when_the_heap_fills(
    spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch, filled: float, is_freed: bool, attempts: int
) -> None:
    """On a busy machine a collection may run while jobs still return; then the next collection frees them."""
    monkeypatch.setattr(garbage_collection, "_MIN_HEAP_FRACTION", filled)
    assert any(left_by_three_jobs(spark, env) <= _LAST_JOB for _ in range(attempts)) is is_freed


def test_concurrent_jobs_share_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[float] = []
    monkeypatch.setattr(garbage_collection, "_is_heap_filled", lambda: bool(checks.append(time.monotonic())))
    for _ in range(20):
        garbage_collection.collect_soon()
    time.sleep(1.0)
    assert len(checks) == 1
