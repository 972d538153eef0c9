"""The progress of Spark jobs, for the progress bar."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.entry.results import ResultSink
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run.jobs import TaskCounts, stop_spark_progress_bar, task_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_tasks_of_a_group(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0, 4000, 1, 8).write.parquet(str(tmp_path / "in"))
    context = spark.sparkContext
    context.addJobTag("counted")
    try:
        spark.read.parquet(str(tmp_path / "in")).groupBy((F.col("id") % 5).alias("k")).count().collect()
    finally:
        context.removeJobTag("counted")
    bridge = Bridge(spark)
    deadline = time.monotonic() + 30
    while (progress := task_counts(bridge, ["counted", "unused"]))["counted"].rows_read < 4000:
        assert time.monotonic() < deadline  # the status store is updated asynchronously
    assert set(progress) == {"counted"}
    counts = progress["counted"]
    assert isinstance(counts, TaskCounts)
    assert counts.done == counts.total > 1
    assert counts.bytes_read > 0
    assert task_counts(bridge, ["unused"]) == {}


def test_a_job_reports_its_running_vertices(env: Any) -> None:
    def slowly(number):  # type: ignore[no-untyped-def]  # PySpark takes hints for those of pandas
        time.sleep(0.4)
        return number

    slow = F.udf(slowly, "long")
    df = env.spark.range(0, 8, 1, 8).select(slow("id").alias("id")).groupBy("id").count()
    env.write(df, ResultSink("counts", lambda rows: rows.collect()))
    job = env.execute_async("slow")
    seen: list[Any] = []
    while job.ended is None:
        seen += job.task_counts().values()
        time.sleep(0.1)
    job.wait()
    assert job.task_counts() == {}
    assert any(0 < counts.done < counts.total for counts in seen)
    assert all(counts.done <= counts.total for counts in seen)


def test_sparks_own_bar_can_be_stopped(spark: SparkSession) -> None:
    stop_spark_progress_bar(Bridge(spark))
