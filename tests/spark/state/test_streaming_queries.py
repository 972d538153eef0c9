"""A streaming query stops after its current batch, at any point of its thread."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.state.streaming_queries import stop_after_batch, stream_execution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STEPS = 200
"""Enough operators that planning takes long enough to be observed."""

TURNS = 15


def planned_slowly(df: DataFrame) -> DataFrame:
    for number in range(STEPS):
        df = df.where(F.rand() > -number - 1)
    return df


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """Return a function that starts a query that has rows for a batch at any time."""
    rows = planned_slowly(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load())
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = []

    def start(**trigger: Any) -> StreamingQuery:
        started.append((writer.trigger(**trigger) if trigger else writer).start())
        return started[-1]

    yield start
    for query in started:
        query.stop()


def wait_for_method(bridge: Bridge, query: StreamingQuery, method: str) -> None:
    """Wait until the thread of a query runs a method."""
    arrays = bridge.find("scala.collection.immutable.ArraySeq")
    thread = stream_execution(query).queryExecutionThread()
    deadline = time.monotonic() + 60
    while f"{method}(" not in str(arrays.unsafeWrapArray(thread.getStackTrace()).mkString(" ")):
        assert time.monotonic() < deadline, f"the query is never in {method}"


def newest(tmp_path: Path, log: str) -> int:
    files = (tmp_path / "checkpoint" / log).iterdir()
    return max((int(file.name) for file in files if file.name.isdigit()), default=-1)


@pytest.mark.parametrize(
    "method", ["constructNextBatch", "QueryExecution.executePhase", "V2TableWriteExec.writeWithV2", "markMicroBatchEnd"]
)
def test_no_batch_is_interrupted(spark: SparkSession, start: Any, tmp_path: Path, method: str) -> None:
    """Spark itself interrupts the thread of a planned batch if the query is terminated by then."""
    query = start()
    wait_for_method(Bridge(spark), query, method)
    assert_ends_after_batch(spark, query, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("trigger", [{}, {"processingTime": "100 milliseconds"}], ids=["at once", "now and then"])
def test_no_batch_is_interrupted_at_any_time(spark: SparkSession, start: Any, tmp_path: Path, trigger: Any) -> None:
    for turn in range(TURNS):
        query = start(**trigger)
        stream_execution(query).awaitInitialization(60_000)
        time.sleep(random.Random(turn).uniform(0, 0.3))
        assert_ends_after_batch(spark, query, tmp_path)


def test_a_stopped_query_is_reported(spark: SparkSession, start: Any) -> None:
    query = start()
    query.stop()
    assert stop_after_batch(Bridge(spark), query)


def assert_ends_after_batch(spark: SparkSession, query: StreamingQuery, tmp_path: Path) -> None:
    assert not stop_after_batch(Bridge(spark), query)
    assert not query.isActive
    assert query.exception() is None
    assert newest(tmp_path, "offsets") == newest(tmp_path, "commits")
