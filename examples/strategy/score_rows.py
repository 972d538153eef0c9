"""Run a job with the strategy and without it: short rows, and a model that takes a second to load in each task."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from rows_per_task import RowsPerTask

from penstock import Environment

SMALL_DATA = {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "1 kb"}
"""By default, a task reads 16 MiB."""


def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Load a model, which takes a second, and count the rows that it scores."""
    time.sleep(1)
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def main() -> None:
    spark = Environment().spark
    documents = spark.range(0, 3_000, 1, 2).selectExpr("id % 600 AS author", "uuid() AS text")
    scored = documents.groupBy("author").agg({"text": "max"}).mapInArrow(score, "rows long")
    for name, strategies in {"without the strategy": [], "RowsPerTask(200)": [RowsPerTask(200)]}.items():
        env = Environment(spark, config=SMALL_DATA, strategies=strategies, progress=False)
        started = time.perf_counter()
        rows = sum(row.rows for row in env.collect(scored))
        seconds = time.perf_counter() - started
        print(f"{name:<20}: {env.last_job.vertices[-1].tasks} tasks scored {rows} rows in {seconds:.1f} s")
    spark.stop()


if __name__ == "__main__":
    main()
