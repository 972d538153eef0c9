"""FLIP-379: sources infer their number of tasks while the job runs, from what the job really reads.

A connector has a split for each of its files. Plain Spark starts a task for each split. Penstock first finishes the
other side of the join, and passes its keys to the connector, which then has few splits. The number of tasks of a table
in Parquet files follows the columns that the query reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pyarrow as pa
from measure import measure, start_spark
from pyspark.sql import DataFrame
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
        """Return the days that the job needs: the conditions include the keys of a finished join side."""
        days = {path.stem: ColumnStatistics(path.stem, path.stem, nulls=0) for path in Path(self.folder).glob("*.txt")}
        return [day for day in sorted(days) if all(might_match(c, {"day": days[day]}) for c in context.predicates)]

    def read_split(self, day: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        readings = [int(line) for line in Path(self.folder, f"{day}.txt").read_text().split()]
        values = {"day": pa.array([day] * len(readings)), "reading": pa.array(readings, pa.int64())}
        yield pa.RecordBatch.from_pydict({name: values[name] for name in columns})


def compare(title: str, query: Callable[[], DataFrame], env: Environment) -> None:
    """Run a query on plain Spark and with Penstock, and print the tasks of the stages."""
    plain = measure(env.spark, lambda: sorted(query().collect()))
    job = measure(env.spark, lambda: sorted(env.collect(query())))
    assert plain.result == job.result
    print(f"{title}: tasks of the stages {plain.tasks} in plain Spark, {job.tasks} in Penstock")


def main() -> None:
    spark = start_spark()
    env = Environment(spark, config=SMALL_DATA, progress=False)
    with TemporaryDirectory() as folder:
        Path(folder, "readings").mkdir()
        for number in range(1, 31):
            lines = "".join(f"{reading}\n" for reading in range(number, number + 1000))
            Path(folder, "readings", f"2026-11-{number:02}.txt").write_text(lines)
        days = spark.range(1, 31).selectExpr("format_string('2026-11-%02d', id) AS day", "id % 10 = 0 AS is_holiday")
        days.write.parquet(f"{folder}/days")
        readings = env.read(Readings(f"{folder}/readings"))
        holidays = spark.read.parquet(f"{folder}/days").where("is_holiday")
        totals = F.sum("reading").alias("total")
        compare("3 of 30 files", lambda: readings.join(holidays, "day").groupBy("day").agg(totals), env)

        texts = [f"sha2(string(id + {number}), 512) AS text{number}" for number in range(2)]
        spark.range(0, 150_000, 1, 1).selectExpr("id", *texts).write.parquet(f"{folder}/wide")
        wide = spark.read.parquet(f"{folder}/wide")
        compare("1 of 3 columns", lambda: wide.agg(F.max("id")), env)
        compare("2 of 3 columns", lambda: wide.agg(F.max("id"), F.max("text0")), env)
        compare("3 of 3 columns", lambda: wide.agg(F.max("id"), F.max("text0"), F.max("text1")), env)
    spark.stop()


if __name__ == "__main__":
    main()
