"""A query with a file sink continues after a rescale, as Spark's log of files has an entry for each batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.spark.plans.dataframes import with_settings
from tests.state.queries import BASE, BY_NAME, SCHEMA, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Batches 2, 5 and 8 compact the log: before, at and after the rescale.
SETTINGS = BASE | {
    "spark.sql.streaming.fileSink.log.compactInterval": "3",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


class Files:
    """A query that drops duplicates and writes files; each file of input becomes a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.checkpoint, self.output = str(folder / "checkpoint"), str(folder / "out")
        (folder / "in").mkdir()
        self.written = 0

    def writer(self) -> Any:
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = BY_NAME["distinct"].build(source.parquet(str(self.folder / "in" / "*.parquet")))
        return rows.writeStream.outputMode("append").format("parquet").option("path", self.output)

    def add(self, batches: int) -> None:
        for _ in range(batches):
            write_input(self.spark, self.folder / "in", self.written)
            self.written += 1

    def run(self, batches: int) -> None:
        """Run some batches with Spark alone."""
        self.add(batches)
        with with_settings(self.spark, SETTINGS):
            query = self.writer().option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()

    def check(self) -> None:
        """Compare the written rows with the result of a batch query."""
        expected = self.spark.read.schema(SCHEMA).parquet(str(self.folder / "in")).select("k", "v").distinct()
        written = self.spark.read.parquet(self.output).select("k", "v")
        assert sorted(map(tuple, written.collect())) == sorted(map(tuple, expected.collect()))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


@pytest.mark.parametrize(
    "before", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_a_stopped_query(files: Files, before: int) -> None:
    files.run(before)
    with with_settings(files.spark, SETTINGS):  # the settings of the log apply here, as in the query
        st.rescale(files.checkpoint, 4, spark=files.spark, file_sink=files.output)
    files.run(4)
    files.check()


@pytest.mark.thorough
def test_a_running_query(files: Files) -> None:
    files.add(2)
    with with_settings(files.spark, SETTINGS):
        query = st.start_query(
            files.writer(), files.checkpoint, spark=files.spark, config={"pipeline.max-parallelism": 2}
        )
    try:
        for number in (4, 2):
            query.processAllAvailable()
            assert query.rescale(number).rescale.new == number
            files.add(2)
        query.processAllAvailable()
    finally:
        query.stop()
    files.check()


@pytest.mark.slow
def test_a_query_that_start_query_continues(files: Files) -> None:
    files.run(2)
    st.rescale(files.checkpoint, 4, spark=files.spark)
    files.add(4)
    with with_settings(files.spark, SETTINGS):
        query = st.start_query(files.writer().trigger(availableNow=True), files.checkpoint, spark=files.spark)
        query.awaitTermination()
    files.check()


@pytest.mark.slow
def test_plain_spark_fails_without_the_entry(files: Files) -> None:
    files.run(3)
    st.rescale(files.checkpoint, 4, spark=files.spark)
    with pytest.raises(Exception, match="BATCH_METADATA_NOT_FOUND"):
        files.run(4)
