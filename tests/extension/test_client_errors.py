"""Failing programs get the error of plain Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import penstock
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def broken(x: int) -> int:
    if x == 5:
        raise ValueError("five")
    return x


def sums(df: DataFrame, column: Any) -> DataFrame:
    return df.groupBy("k").agg(F.sum(column).alias("s"))


def lost_files(df: DataFrame, folder: Path) -> Any:
    df.write.parquet(str(folder / "lost"))
    read = df.sparkSession.read.parquet(str(folder / "lost"))
    for part in (folder / "lost").glob("part-*"):
        part.unlink()
    return read.groupBy("k").count().collect()


def spoilt_files(df: DataFrame, folder: Path) -> Any:
    df.write.parquet(str(folder / "spoilt"))
    read = df.sparkSession.read.schema("id long, k long").parquet(str(folder / "spoilt"))
    for part in (folder / "spoilt").glob("part-*"):
        part.write_bytes(b"nothing that can be read as a file of columns")
    return read.groupBy("k").count().collect()


def cancelled(df: DataFrame, folder: Path) -> Any:
    """A thread cancels the job group of another while its query runs."""
    context = df.sparkSession.sparkContext
    failed: list[BaseException] = []
    sleepy = F.udf(lambda x: time.sleep(20) or x, "long")

    def collect() -> None:
        context.setJobGroup("slow", "slow query")
        try:
            df.groupBy(sleepy("k")).count().collect()
        except BaseException as error:
            failed.append(error)

    from pyspark import InheritableThread

    thread = InheritableThread(target=collect)
    thread.start()
    status = context.statusTracker()
    deadline = time.monotonic() + 30
    while not status.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    context.cancelJobGroup("slow")
    thread.join(30)
    assert not thread.is_alive()
    raise failed[0]


FAILURES: dict[str, Callable[[DataFrame, Path], Any]] = {
    "division by zero": lambda df, _: sums(df, F.expr("10 div (id - 50)")).collect(),
    "cast": lambda df, _: sums(df, F.expr("cast(concat('a', id) as int)")).toPandas(),
    "overflow": lambda df, _: df.groupBy("k").agg(F.sum(F.expr("9223372036854775807 - id"))).collect(),
    "raise_error": lambda df, _: sums(df, F.when(df.id == 3, F.raise_error(F.lit("three"))).otherwise(1)).collect(),
    "assert_true": lambda df, _: df.groupBy("k").agg(F.max(F.assert_true(df.id < 5))).show(),
    "python": lambda df, _: sums(df, F.udf(broken, "long")("id")).collect(),
    "python in pandas": lambda df, _: df.groupBy("k").applyInPandas(lambda f: f.missing, "k long").collect(),
    "wrong type of pandas": lambda df, _: (
        df.groupBy("k").applyInPandas(lambda f: f[["id"]], "a string, b int").collect()
    ),
    "many rows of a subquery": lambda df, _: df.sparkSession.sql(
        "select k, (select k from ks) from ks group by k"
    ).collect(),
    "writing": lambda df, folder: sums(df, F.expr("10 div (id - 50)")).write.parquet(str(folder / "out")),
    "existing folder": lambda df, folder: [sums(df, "id").write.parquet(str(folder / "o")) for _ in range(2)],
    "table": lambda df, _: sums(df, F.expr("10 div (id - 50)")).write.saveAsTable("failing"),
    "iterator": lambda df, _: list(sums(df, F.expr("10 div (id - 50)")).toLocalIterator()),
    "rdd": lambda df, _: sums(df, F.expr("10 div (id - 50)")).rdd.map(tuple).collect(),
    "task": lambda df, _: sums(df, "id").foreach(lambda row: broken(5)),
    "cache": lambda df, _: sums(df, F.expr("10 div (id - 50)")).cache().count(),
    "lost files": lost_files,
    "spoilt files": spoilt_files,
    "cancelled": cancelled,
    "map keys": lambda df, _: (
        df.groupBy("k").agg(F.map_from_arrays(F.array(F.lit(1), F.lit(1)), F.array("k", "k"))).collect()
    ),
    "large broadcast": lambda df, _: df.sparkSession.sql(
        "select /*+ broadcast(b) */ * from ks a join ks b on a.k = b.k and raise_error(string(a.id)) is null"
    ).collect(),
}


def outcome(run: Callable[[DataFrame, Path], Any], df: DataFrame, folder: Path) -> Any:
    try:
        return "no error", run(df, folder)
    except Exception as error:
        first = str(error).split("\nDriver stacktrace")[0].split("JVM stacktrace")[0]
        lines = [line for line in first.splitlines() if not line.startswith(("\tat ", "  File "))]
        text = re.sub(r"part-[\w.-]+|0x[0-9a-f]+|plain|enabled|-?\d+", "#", "\n".join(lines))
        condition = getattr(error, "getCondition", lambda: None)()
        return type(error), condition, text


@pytest.mark.parametrize("name", FAILURES)
def test_error_is_the_same(name: str, spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(0, 100, 1, 4).withColumn("k", F.col("id") % 7)
    df.createOrReplaceTempView("ks")
    folders = tmp_path / "plain", tmp_path / "enabled"
    for folder in folders:
        folder.mkdir()
    expected = outcome(FAILURES[name], df, folders[0])
    spark.catalog.clearCache()
    with penstock.enabled(spark, config=OFF):
        actual = outcome(FAILURES[name], df, folders[1])
    spark.catalog.clearCache()
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    spark.sql("DROP TABLE IF EXISTS failing")
    assert expected[0] != "no error"
    assert actual == expected
