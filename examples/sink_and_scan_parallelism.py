"""FLIP-146: set the number of tasks that read a table or write it, or limit the number that is inferred.

Each setting applies to a single scan or a single sink. Plain Spark derives its tasks from settings of the session.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from measure import Run, measure, start_spark

from penstock import Environment
from penstock.connectors import FileSink

SMALL_DATA = {
    "execution.native": False,  # otherwise, DuckDB may compute small queries in a single task
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "4 mb",  # by default 16 MiB
}
CASES: list[tuple[str, dict[str, int], int | None]] = [
    ("Penstock infers the tasks", {}, None),
    ("at most 2 are inferred", {"scan.infer-parallelism.max": 2}, None),
    ("6 tasks read", {"scan.parallelism": 6}, None),
    ("3 tasks write", {}, 3),
    ("6 tasks read, 3 write", {"scan.parallelism": 6}, 3),
]
"""The title, the options of the reader, and the parallelism of the sink."""


def main() -> None:
    spark = start_spark()
    with TemporaryDirectory() as name:
        folder = Path(name)
        events = spark.range(0, 150_000, 1, 1).selectExpr("id", "sha2(string(id), 512) AS payload")
        events.write.option("parquet.block.size", 2**20).parquet(f"{folder}/events")

        def report(title: str, run: Run, target: Path) -> None:
            files = len(list(target.glob("part-*")))
            rows = spark.read.parquet(str(target)).count()
            print(f"{title:<26} tasks of its stages {run.tasks}, {files} files, {rows} rows")

        plain = spark.read.parquet(f"{folder}/events")
        report("plain Spark", measure(spark, lambda: plain.write.parquet(f"{folder}/plain")), folder / "plain")

        env = Environment(spark, config=SMALL_DATA, progress=False)
        for number, (title, options, parallelism) in enumerate(CASES):
            target = folder / f"copy{number}"
            table = spark.read.options(**options).parquet(f"{folder}/events")
            env.write(table, FileSink(str(target)), parallelism=parallelism)
            report(title, measure(spark, env.execute), target)
    spark.stop()


if __name__ == "__main__":
    main()
