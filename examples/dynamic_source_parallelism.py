"""FLIP-379: sources infer their number of tasks while the job runs, from what the job really reads.

A connector lists its parts (splits) when the query is planned, so plain Spark starts a task for each of them. Penstock
waits for the other side of the join: it knows the keys, and the connector needs few tasks. A table in Parquet files
gets its number of tasks from the columns that the query reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pyarrow as pa
from measure import measure, start_spark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock import Environment
from penstock.connectors import ScanContext, SplitSource
from penstock.connectors.core.predicates import ColumnStatistics, might_match

SMALL_DATA = {
    "execution.batch.adaptive.whole-query-threshold": 0,  # otherwise, Spark runs small queries unchanged
    "execution.native": False,  # otherwise, DuckDB computes small queries in a single task
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "2 mb",  # by default 16 MiB
}


@dataclass(frozen=True)
class Readings(SplitSource):
    """A connector for a folder of text files, a file per day with a reading per line."""

    folder: str
    schema = StructType().add("day", "string").add("reading", "long")
    uses_predicates: ClassVar[bool] = True

    def enumerate_splits(self, context: ScanContext) -> list[str]:
        """Return the days that the job needs. The conditions include the keys of a finished join side."""
        days = sorted(path.stem for path in Path(self.folder).glob("*.txt"))
        conditions = context.predicates
        return [
            day
            for day in days
            if all(might_match(condition, {"day": ColumnStatistics(day, day, nulls=0)}) for condition in conditions)
        ]

    def read_split(self, day: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the file of a day."""
        readings = [int(line) for line in Path(self.folder, f"{day}.txt").read_text().split()]
        values = {"day": pa.array([day] * len(readings)), "reading": pa.array(readings, pa.int64())}
        yield pa.RecordBatch.from_pydict({name: values[name] for name in columns})


def read_a_connector(spark: SparkSession, folder: Path) -> None:
    (folder / "readings").mkdir()
    for number in range(1, 31):
        lines = "".join(f"{reading}\n" for reading in range(number, number + 1000))
        (folder / "readings" / f"2026-11-{number:02}.txt").write_text(lines)
    days = spark.range(1, 31).selectExpr("format_string('2026-11-%02d', id) AS day", "id % 10 = 0 AS is_holiday")
    days.write.parquet(f"{folder}/days")

    env = Environment(spark, config=SMALL_DATA, progress=False)
    readings = env.read(Readings(f"{folder}/readings"))
    holidays = spark.read.parquet(f"{folder}/days").where("is_holiday")

    def sums() -> DataFrame:
        return readings.join(holidays, "day").groupBy("day").agg(F.sum("reading").alias("total")).orderBy("day")

    plain = measure(spark, lambda: sums().collect())
    job = measure(spark, lambda: env.collect(sums()))
    assert plain.result == job.result
    print("A connector with 30 files, of which the join needs 3")
    print(f"  plain Spark: tasks of its stages {plain.tasks}")
    print(f"  Penstock:    tasks of its stages {job.tasks}")


def read_parquet(spark: SparkSession, folder: Path) -> None:
    texts = [f"sha2(string(id + {number}), 512) AS text{number}" for number in range(2)]
    spark.range(0, 150_000, 1, 1).selectExpr("id", *texts).write.parquet(f"{folder}/wide")
    env = Environment(spark, config=SMALL_DATA, progress=False)
    print("A table in Parquet files of which queries read some columns")
    for columns in (["id"], ["id", "text0"], ["id", "text0", "text1"]):

        def largest(columns: list[str] = columns) -> DataFrame:
            return spark.read.parquet(f"{folder}/wide").agg(*[F.max(column) for column in columns])

        plain = measure(spark, lambda: largest().collect())
        job = measure(spark, lambda: env.collect(largest()))
        assert plain.result == job.result
        print(f"  {len(columns)} of 3 columns: {plain.tasks[0]} tasks in plain Spark, {job.tasks[0]} in Penstock")
        source = env.last_job.vertices[0]
        print(f"    {source.reason}")


def main() -> None:
    spark = start_spark()
    with TemporaryDirectory() as folder:
        read_a_connector(spark, Path(folder))
        read_parquet(spark, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
