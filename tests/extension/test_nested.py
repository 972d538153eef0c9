"""Queries within and beside others: from callbacks, from threads, of one cached DataFrame, beside a stream."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import penstock
from penstock.scheduler.job import HANDED_BACK, RECENT
from penstock.spark.dataframes import with_settings
from tests.conftest import OFF

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

ROWS = 60


def grouped(spark: SparkSession, by: int = 7) -> DataFrame:
    return spark.range(ROWS).groupBy((F.col("id") % by).alias("k")).agg(F.sum("id").alias("s"))


def counting(spark: SparkSession, seconds: float = 0) -> tuple[DataFrame, Any]:
    """Rows behind a shuffle, and how often the function was called that makes one of their values."""
    calls = spark.sparkContext.accumulator(0)

    def count(value):  # type: ignore[no-untyped-def]  # hints would make it a function of another kind
        calls.add(1)
        time.sleep(seconds)
        return value

    return spark.range(ROWS).repartition(4, "id").select(F.udf(count, "long")("id").alias("id")), calls


def all_at_once(*runs: Callable[[], Any]) -> list[Any]:
    """What functions return that are called at once, each on a thread of its own."""
    found: list[Any] = [None] * len(runs)
    start = threading.Barrier(len(runs))

    def run(place: int) -> None:
        start.wait()
        try:
            found[place] = runs[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


def while_rows_come(spark: SparkSession, folder: Path) -> Any:
    """The driver asks another query for each row that it gets of one."""
    return [
        (row.k, sorted(grouped(spark, row.k + 1).collect()))
        for prefetch in (False, True)
        for row in grouped(spark).orderBy("k").toLocalIterator(prefetchPartitions=prefetch)
    ]


def in_a_listener(spark: SparkSession, folder: Path) -> Any:
    """A listener of a stream asks when it hears of a batch."""
    seen: list[Any] = []
    heard = threading.Event()

    class Asks(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            seen.append(sorted(grouped(spark).collect()))

        def onQueryProgress(self, event: Any) -> None:
            if event.progress.numInputRows:
                seen.append((event.progress.numInputRows, sorted(grouped(spark, 3).collect())))

        def onQueryTerminated(self, event: Any) -> None:
            heard.set()

    listener = Asks()
    spark.streams.addListener(listener)
    try:
        spark.range(10).write.parquet(str(folder / "in"))
        stream = spark.readStream.schema("id long").parquet(str(folder / "in")).groupBy("id").count()
        query = stream.writeStream.format("noop").outputMode("complete").trigger(availableNow=True).start()
        query.awaitTermination(60)
        assert heard.wait(30)
    finally:
        spark.streams.removeListener(listener)
    return seen


def in_a_batch_and_its_threads(spark: SparkSession, folder: Path) -> Any:
    """A batch is cached, and read by queries on threads of their own while it is built."""
    seen: list[Any] = []

    def each(batch: DataFrame, _: int) -> None:
        cached = batch.groupBy((F.col("id") % 3).alias("k")).count().cache()
        seen.append(
            all_at_once(
                lambda: sorted(cached.collect()),
                lambda: sorted(cached.join(grouped(batch.sparkSession), "k").collect()),
                lambda: grouped(batch.sparkSession).count(),
            )
        )
        cached.unpersist(blocking=True)

    spark.range(10).write.parquet(str(folder / "in"))
    stream = spark.readStream.schema("id long").parquet(str(folder / "in"))
    stream.writeStream.foreachBatch(each).trigger(availableNow=True).start().awaitTermination(120)
    return seen


def cached_by_two(spark: SparkSession, folder: Path) -> Any:
    """Two threads ask at once for rows that are to be cached: they are made once."""
    df, calls = counting(spark)
    df.cache()
    try:
        found = all_at_once(lambda: sorted(df.collect()), lambda: df.groupBy().sum("id").collect())
        return found, sorted(df.collect()), calls.value
    finally:
        df.unpersist(blocking=True)


def while_it_is_cached(spark: SparkSession, folder: Path) -> Any:
    """A thread begins to ask while another makes the rows that are cached."""
    df, calls = counting(spark, seconds=0.03)
    df.cache()
    try:
        building = threading.Thread(target=df.count)
        building.start()
        tracker = spark.sparkContext.statusTracker()
        until = time.monotonic() + 30
        while not tracker.getActiveStageIds() and time.monotonic() < until:
            time.sleep(0.01)
        found = all_at_once(lambda: sorted(grouped(spark).collect()), lambda: sorted(df.collect()))
        building.join(60)
        return found, calls.value
    finally:
        df.unpersist(blocking=True)


def beside_a_stream(spark: SparkSession, folder: Path) -> Any:
    """A stream that keeps state is started four times, each time with other queries beside it."""
    batches: list[Any] = []

    def each(batch: DataFrame, number: int) -> None:
        batches.append((number, sorted(batch.collect())))

    for start in range(4):
        spark.range(ROWS).selectExpr(f"id % {start + 3} AS k", f"id + {start} AS v").coalesce(1).write.mode(
            "append"
        ).parquet(str(folder / "in"))
        stream = spark.readStream.schema("k long, v long").parquet(str(folder / "in"))
        states = stream.dropDuplicates(["k", "v"]).groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))
        writer = states.writeStream.outputMode("update").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.foreachBatch(each).trigger(availableNow=True).start()
        beside = all_at_once(lambda: sorted(grouped(spark).collect()), lambda: grouped(spark, 5).count())
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
"""What is run, and how many jobs it has at least."""


@pytest.mark.parametrize("name", CASES)
def test_nested_queries_give_what_they_give_without(spark: SparkSession, tmp_path: Path, name: str) -> None:
    run, least = CASES[name]
    for folder in ("without", "with"):
        (tmp_path / folder).mkdir()
    expected = run(spark, tmp_path / "without")
    with penstock.enabled(spark, config=OFF):
        before = list(RECENT)
        found = run(spark, tmp_path / "with")
        jobs = [job for job in RECENT if job not in before]
    assert found == expected
    assert len(jobs) >= least
    assert [one.reason for job in jobs for one in job.decisions if one.chosen == HANDED_BACK] == []


def test_cached_rows_are_made_once(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.enabled(spark, config=OFF):
        (rows, total), again, calls = cached_by_two(spark, tmp_path)
    assert rows == again == [(number,) for number in range(ROWS)]
    assert total == [(sum(range(ROWS)),)]
    assert calls == ROWS


def test_a_query_that_is_being_cached_does_not_wait_for_itself(served: SparkSession) -> None:
    """Without adaptive execution, too, where Spark plans the whole query."""
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
