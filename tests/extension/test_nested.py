"""Nested and concurrent queries: in callbacks and threads, of a shared cached DataFrame, next to a stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import penstock
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from penstock.spark.plans.dataframes import with_settings
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

ROWS = 60


def grouped(spark: SparkSession, by: int = 7) -> DataFrame:
    return spark.range(ROWS).groupBy((F.col("id") % by).alias("k")).agg(F.sum("id").alias("s"))


def counting(spark: SparkSession, seconds: float = 0) -> tuple[DataFrame, Any]:
    """Return rows after a shuffle, and the number of calls of a function that computes a value of them."""
    calls = spark.sparkContext.accumulator(0)

    def count(value):  # type: ignore[no-untyped-def]  # hints would make it a function of another kind
        calls.add(1)
        time.sleep(seconds)
        return value

    return spark.range(ROWS).repartition(4, "id").select(F.udf(count, "long")("id").alias("id")), calls


def run_concurrently(*runs: Callable[[], Any]) -> list[Any]:
    """Call functions concurrently, each on its own thread; return their results."""
    results: list[Any] = [None] * len(runs)
    start = threading.Barrier(len(runs))

    def run(index: int) -> None:
        start.wait()
        try:
            results[index] = runs[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


def while_rows_come(spark: SparkSession, folder: Path) -> Any:
    """The driver runs another query for each row of a query."""
    return [
        (row.k, sorted(grouped(spark, row.k + 1).collect()))
        for prefetch in (False, True)
        for row in grouped(spark).orderBy("k").toLocalIterator(prefetchPartitions=prefetch)
    ]


def in_a_listener(spark: SparkSession, folder: Path) -> Any:
    """A listener of a stream runs a query for each batch."""
    seen: list[Any] = []
    terminated = threading.Event()

    class QueryingListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            seen.append(sorted(grouped(spark).collect()))

        def onQueryProgress(self, event: Any) -> None:
            if event.progress.numInputRows:
                seen.append((event.progress.numInputRows, sorted(grouped(spark, 3).collect())))

        def onQueryTerminated(self, event: Any) -> None:
            terminated.set()

    listener = QueryingListener()
    spark.streams.addListener(listener)
    try:
        spark.range(10).write.parquet(str(folder / "in"))
        stream = spark.readStream.schema("id long").parquet(str(folder / "in")).groupBy("id").count()
        query = stream.writeStream.format("noop").outputMode("complete").trigger(availableNow=True).start()
        query.awaitTermination(60)
        assert terminated.wait(30)
    finally:
        spark.streams.removeListener(listener)
    return seen


def in_a_batch_and_its_threads(spark: SparkSession, folder: Path) -> Any:
    """A batch is cached, and read by queries on other threads while it is built."""
    seen: list[Any] = []

    def process_batch(batch: DataFrame, _: int) -> None:
        cached = batch.groupBy((F.col("id") % 3).alias("k")).count().cache()
        seen.append(
            run_concurrently(
                lambda: sorted(cached.collect()),
                lambda: sorted(cached.join(grouped(batch.sparkSession), "k").collect()),
                lambda: grouped(batch.sparkSession).count(),
            )
        )
        cached.unpersist(blocking=True)

    spark.range(10).write.parquet(str(folder / "in"))
    stream = spark.readStream.schema("id long").parquet(str(folder / "in"))
    stream.writeStream.foreachBatch(process_batch).trigger(availableNow=True).start().awaitTermination(120)
    return seen


def cached_by_two(spark: SparkSession, folder: Path) -> Any:
    """Two threads read rows to be cached concurrently: the rows are computed once."""
    df, calls = counting(spark)
    df.cache()
    try:
        results = run_concurrently(lambda: sorted(df.collect()), lambda: df.groupBy().sum("id").collect())
        return results, sorted(df.collect()), calls.value
    finally:
        df.unpersist(blocking=True)


def while_it_is_cached(spark: SparkSession, folder: Path) -> Any:
    """A thread reads while another thread builds the cache."""
    df, calls = counting(spark, seconds=0.03)
    df.cache()
    try:
        building = threading.Thread(target=df.count)
        building.start()
        tracker = spark.sparkContext.statusTracker()
        deadline = time.monotonic() + 30
        while not tracker.getActiveStageIds() and time.monotonic() < deadline:
            time.sleep(0.01)
        results = run_concurrently(lambda: sorted(grouped(spark).collect()), lambda: sorted(df.collect()))
        building.join(60)
        return results, calls.value
    finally:
        df.unpersist(blocking=True)


def beside_a_stream(spark: SparkSession, folder: Path) -> Any:
    """A stateful stream is started four times, each time with concurrent queries."""
    batches: list[Any] = []

    def process_batch(batch: DataFrame, number: int) -> None:
        batches.append((number, sorted(batch.collect())))

    for start in range(4):
        spark.range(ROWS).selectExpr(f"id % {start + 3} AS k", f"id + {start} AS v").coalesce(1).write.mode(
            "append"
        ).parquet(str(folder / "in"))
        stream = spark.readStream.schema("k long, v long").parquet(str(folder / "in"))
        states = stream.dropDuplicates(["k", "v"]).groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))
        writer = states.writeStream.outputMode("update").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.foreachBatch(process_batch).trigger(availableNow=True).start()
        beside = run_concurrently(lambda: sorted(grouped(spark).collect()), lambda: grouped(spark, 5).count())
        query.awaitTermination(120)
        assert query.exception() is None
        batches.append(beside)
    return batches


CASES: dict[str, tuple[Callable[[SparkSession, Path], Any], int]] = {
    "within the rows of another": (while_rows_come, 16),
    "within a listener": (in_a_listener, 2),
    "within a batch and its threads": (in_a_batch_and_its_threads, 3),
    "cached by two threads": (cached_by_two, 1),
    "while it is cached": (while_it_is_cached, 2),
    "beside a stream that starts again": (beside_a_stream, 8),
}
"""The program, and the minimum number of its jobs."""


@pytest.mark.parametrize(
    "name", [*list(CASES)[:-1], pytest.param("beside a stream that starts again", marks=pytest.mark.thorough)]
)
def test_nested_queries_return_the_rows_of_plain_spark(spark: SparkSession, tmp_path: Path, name: str) -> None:
    run, min_jobs = CASES[name]
    for folder in ("without", "with"):
        (tmp_path / folder).mkdir()
    expected = run(spark, tmp_path / "without")
    with penstock.enabled(spark, config=OFF):
        before = list(RECENT)
        actual = run(spark, tmp_path / "with")
        jobs = [job for job in RECENT if job not in before]
    assert actual == expected
    assert len(jobs) >= min_jobs
    assert [decision.reason for job in jobs for decision in job.decisions if decision.chosen == RUN_BY_SPARK] == []


def test_cached_rows_are_computed_once(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.enabled(spark, config=OFF):
        (rows, total), again, calls = cached_by_two(spark, tmp_path)
    assert rows == again == [(number,) for number in range(ROWS)]
    assert total == [(sum(range(ROWS)),)]
    assert calls == ROWS


def test_a_query_that_is_being_cached_does_not_wait_for_itself(served: SparkSession) -> None:
    """Also without adaptive execution, where Spark plans the whole query."""
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.penstock.execution.batch.adaptive.auto-parallelism.max-parallelism": "4",
    }
    with with_settings(served, settings):
        df = served.range(60).repartition(3).withColumn("u", F.expr("uuid()")).cache()
        pool = ThreadPoolExecutor(1)
        try:
            assert pool.submit(df.count).result(60) == 60
            assert df.select("u").distinct().count() == 60
        finally:
            pool.shutdown(wait=False)
            df.unpersist()
