"""What a job leaves in the JVM goes once the driver's heap fills, though Python's own collector does not run."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import JavaObject

from penstock.spark import garbage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.alone
_LAST_JOB = 250
"""Objects of fewer than two jobs (140 each): the last may still be returning when those before it are freed."""


@pytest.fixture(autouse=True)
def _without_pythons_own_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_DELAY_SECONDS", 0.5)  # a busy machine needs it to return from a job
    monkeypatch.setattr(garbage, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(garbage, "_last", 0.0)  # an earlier test's collection may have put the next one off by seconds
    monkeypatch.setattr(garbage, "_next", 0.0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def handles() -> int:
    """Return how many objects of the JVM are kept for Python."""
    return sum(type(one) is JavaObject for one in gc.get_objects())


def left_by_three_jobs(spark: SparkSession, env: Environment) -> int:
    """Return how many more objects of the JVM are kept once three jobs have ended, and what a job frees has been freed."""
    env.collect(spark.range(10).groupBy().count())
    gc.collect()
    before = handles()
    for _ in range(3):
        env.collect(spark.range(1000).selectExpr("id % 7 as k").groupBy("k").count())
    until = time.monotonic() + 5
    while handles() > before + _LAST_JOB and time.monotonic() < until:
        time.sleep(0.1)
    return handles() - before


@pytest.mark.parametrize(("filled", "is_freed"), [(0.0, True), (1.0, False)])
def test_jobs_are_forgotten_when_the_heap_fills(
    spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch, filled: float, is_freed: bool
) -> None:
    """On a busy machine a collection may come while jobs still return; then it is the next one that frees them."""
    monkeypatch.setattr(garbage, "_FILLED", filled)
    assert any(left_by_three_jobs(spark, env) <= _LAST_JOB for _ in range(3)) is is_freed


def test_many_jobs_that_end_together_are_one_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(garbage, "_is_filled", lambda: bool(asked.append(time.monotonic())))
    for _ in range(20):
        garbage.collect_soon()
    time.sleep(1.0)
    assert len(asked) == 1
