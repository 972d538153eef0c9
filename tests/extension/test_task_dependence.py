"""Values that depend on the tasks of a query are those of plain Spark."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

import penstock
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from tests.conftest import OFF

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.services import Postgres

SMALL_TASKS = OFF | {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "600kb"}
"""A task reads 600 KiB instead of 16 MiB, so that small files are split like large files."""


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two files of 3 MB with many row groups, an id, and two columns computed from it."""
    path = str(tmp_path_factory.mktemp("files"))
    for first in (0, 20_000):
        long = "sha2(cast(id AS string), 256) AS name"
        rows = spark.range(first, first + 20_000, 1, 1).selectExpr("id", long, "sha2(cast(-id AS string), 256) AS pad")
        writer = rows.write.mode("append").option("parquet.block.size", 65536).option("compression", "uncompressed")
        writer.parquet(path)
    return path


def torn_by_index(numbered: DataFrame) -> Any:
    """Join two selections of a frame by the row number; count pairs of different rows."""
    pairs = numbered.select("i", "id").join(numbered.select("i", "name"), "i")
    return pairs.where("name <> sha2(cast(id AS string), 256)").count()


def numbered(spark: SparkSession, path: str) -> Any:
    return torn_by_index(spark.read.parquet(path).zipWithIndex("i"))


def numbered_groups(spark: SparkSession, path: str) -> Any:
    groups = spark.read.parquet(path).groupBy("id", "name").count()
    return torn_by_index(groups.orderBy("id").zipWithIndex("i"))


def of_pandas(spark: SparkSession, path: str) -> Any:
    import pyspark.pandas as ps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about the default index
        frame = ps.read_parquet(path)
        ids, names = frame[["id"]].to_pandas(), frame[["name"]].to_pandas()
    return list(ids.join(names).itertuples())


def blocks(column: str) -> Callable[[SparkSession, str], Any]:
    def run(spark: SparkSession, path: str) -> Any:
        rows = spark.read.parquet(path).selectExpr(f"{column} AS block").groupBy("block").count()
        return sorted(map(tuple, rows.collect()))

    return run


def on_barrier(spark: SparkSession, path: str) -> Any:
    def ids(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame[["id"]]

    mapped = spark.read.parquet(path).mapInPandas(ids, "id long", barrier=True)
    return sorted(map(tuple, mapped.groupBy((F.col("id") % 3).alias("k")).count().collect()))


def observed_in_cache(spark: SparkSession, path: str) -> Any:
    seen = Observation("seen")
    cached = spark.read.parquet(path).select("id").observe(seen, F.count("*").alias("n")).cache()
    try:
        cached.groupBy((F.col("id") % 3).alias("k")).count().collect()
        return seen.get
    finally:
        cached.unpersist(blocking=True)


PROGRAMS: dict[str, Callable[[SparkSession, str], Any]] = {
    "zipWithIndex of a scan": numbered,
    "zipWithIndex of groups": numbered_groups,
    "the default index of pandas on Spark": of_pandas,
    "_metadata.file_block_start": blocks("_metadata.file_block_start"),
    "_metadata": blocks("_metadata"),
    "input_file_block_start()": blocks("input_file_block_start()"),
    "a barrier stage of the user's": on_barrier,
    "metrics observed below a cache": observed_in_cache,
}


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_values_that_depend_on_tasks_are_sparks(spark: SparkSession, files: str, program: str) -> None:
    if "zipWithIndex" in program and not hasattr(spark.range(1), "zipWithIndex"):
        pytest.skip("this release of Spark has no DataFrame.zipWithIndex")
    expected = PROGRAMS[program](spark, files)
    with penstock.enabled(spark, config=SMALL_TASKS) as served:
        assert PROGRAMS[program](served, files) == expected


def test_a_query_of_file_paths_is_delegated(spark: SparkSession, files: str) -> None:
    query = spark.read.parquet(files).selectExpr("_metadata.file_path AS path").groupBy("path").count()
    expected = sorted(map(tuple, query.collect()))
    with penstock.enabled(spark, config=SMALL_TASKS) as served:
        again = served.read.parquet(files).selectExpr("_metadata.file_path AS path").groupBy("path").count()
        assert sorted(map(tuple, again.collect())) == expected
    (job,) = [job for job in RECENT if job.vertices]
    assert [decision.reason for decision in job.decisions if decision.chosen == RUN_BY_SPARK] == []
    assert (job.vertices[0].tasks or 0) > 2  # as many as plain Spark has


@pytest.mark.thorough
def test_a_second_action_without_a_shuffle_reads_the_table_again(spark: SparkSession, postgres: Postgres) -> None:
    """As in Spark, a second action reads the current rows of the table."""
    postgres.sql("DROP TABLE IF EXISTS anew; CREATE TABLE anew AS SELECT i AS id FROM generate_series(1, 60000) i")
    postgres.sql("ALTER TABLE anew ADD PRIMARY KEY (id); ANALYZE anew")
    with penstock.enabled(spark, config=SMALL_TASKS | {next(iter(set(SMALL_TASKS) - set(OFF))): "64kb"}) as served:
        df = served.read.jdbc(postgres.url, "anew", properties=postgres.properties)
        assert len(df.collect()) == 60_000
        postgres.sql("INSERT INTO anew VALUES (60001)")
        assert len(df.collect()) == 60_001
    assert [job.vertices[0].tasks for job in RECENT] != [1, 1]


@pytest.mark.parametrize(("interrupts", "expected"), [(False, "false"), (True, "true")])
def test_the_job_group_decides_whether_tasks_are_interrupted(
    served: SparkSession, interrupts: bool, expected: str
) -> None:
    def read_property(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in frames:
            yield pd.DataFrame({"value": [str(context.getLocalProperty("spark.job.interruptOnCancel"))]})

    served.sparkContext.setJobGroup("mine", "mine", interruptOnCancel=interrupts)
    try:
        rows = served.range(0, 100, 1, 2).mapInPandas(read_property, "value string").groupBy("value").count().collect()
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            served.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]
    assert [row.value for row in rows] == [expected]


def test_files_are_large_enough_to_be_split(files: str) -> None:
    """The files must be large enough to be split, or the tests of this module prove nothing."""
    assert all(file.stat().st_size > 2 << 20 for file in Path(files).glob("*.parquet"))
