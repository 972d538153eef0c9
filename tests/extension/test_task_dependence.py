"""Values that depend on the tasks of a query: with a job they are what plain Spark gives."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

import penstock
from penstock.scheduler.job import HANDED_BACK, RECENT
from tests.conftest import OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from tests.services import Postgres

SMALL_TASKS = OFF | {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "600kb"}
"""A task reads 600 KiB instead of 16 MiB, so that small files are cut as large ones are."""


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two files of 3 MB with many row groups, of an id, and of a long and a short column made of it."""
    path = str(tmp_path_factory.mktemp("files"))
    for first in (0, 20_000):
        long = "sha2(cast(id AS string), 256) AS name"
        rows = spark.range(first, first + 20_000, 1, 1).selectExpr("id", long, "sha2(cast(-id AS string), 256) AS pad")
        writer = rows.write.mode("append").option("parquet.block.size", 65536).option("compression", "uncompressed")
        writer.parquet(path)
    return path


def torn_by_index(numbered: DataFrame) -> Any:
    """Join two selections of one frame by the number of the row; count pairs that were no row."""
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
        warnings.simplefilter("ignore")  # it advises to set an index
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


def test_the_path_of_a_file_is_no_reason_to_read_with_sparks_tasks(spark: SparkSession, files: str) -> None:
    query = spark.read.parquet(files).selectExpr("_metadata.file_path AS path").groupBy("path").count()
    expected = sorted(map(tuple, query.collect()))
    with penstock.enabled(spark, config=SMALL_TASKS) as served:
        again = served.read.parquet(files).selectExpr("_metadata.file_path AS path").groupBy("path").count()
        assert sorted(map(tuple, again.collect())) == expected
    (job,) = [job for job in RECENT if job.vertices]
    assert [one.reason for one in job.decisions if one.chosen == HANDED_BACK] == []
    assert (job.vertices[0].tasks or 0) > 2  # as many as plain Spark has


@pytest.mark.thorough
def test_a_table_that_is_read_without_a_shuffle_is_read_anew(spark: SparkSession, postgres: Postgres) -> None:
    """As in Spark, where a second action reads the table as it is then."""
    postgres.sql("DROP TABLE IF EXISTS anew; CREATE TABLE anew AS SELECT i AS id FROM generate_series(1, 60000) i")
    postgres.sql("ALTER TABLE anew ADD PRIMARY KEY (id); ANALYZE anew")
    with penstock.enabled(spark, config=SMALL_TASKS | {next(iter(set(SMALL_TASKS) - set(OFF))): "64kb"}) as served:
        df = served.read.jdbc(postgres.url, "anew", properties=postgres.properties)
        assert len(df.collect()) == 60_000
        postgres.sql("INSERT INTO anew VALUES (60001)")
        assert len(df.collect()) == 60_001
    assert [job.vertices[0].tasks for job in RECENT] != [1, 1]


@pytest.mark.parametrize(("interrupts", "expected"), [(False, "false"), (True, "true")])
def test_the_job_group_of_a_program_says_whether_tasks_are_interrupted(
    served: SparkSession, interrupts: bool, expected: str
) -> None:
    def told(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in frames:
            yield pd.DataFrame({"told": [str(context.getLocalProperty("spark.job.interruptOnCancel"))]})

    served.sparkContext.setJobGroup("mine", "mine", interruptOnCancel=interrupts)
    try:
        rows = served.range(0, 100, 1, 2).mapInPandas(told, "told string").groupBy("told").count().collect()
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            served.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]
    assert [row.told for row in rows] == [expected]


def test_files_of_small_tasks_have_that_many(files: str) -> None:
    """The files above are large enough to be cut, else the tests of this module show nothing."""
    assert all(file.stat().st_size > 2 << 20 for file in Path(files).glob("*.parquet"))
