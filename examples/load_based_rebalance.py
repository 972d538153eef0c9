"""FLINK-31655: a slow consumer gets fewer rows, so it does not delay the others.

Four consumers call a slow function for each row, and the first consumer is ten times slower. Spark distributes the rows
evenly in advance, so the job takes as long as the slow consumer needs for a quarter of the rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from measure import Run, measure, start_spark
from pyspark import TaskContext
from pyspark.sql import DataFrame

import penstock
from penstock import Environment

ROWS, CONSUMERS, ROUNDS = 40_000, 4, 3


def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sleep for each row, as a model or a service would; return the consumer with its number of rows."""
    task = TaskContext.get()
    assert task is not None
    consumer = task.partitionId()
    seconds_per_row = 500e-6 if consumer == 0 else 50e-6
    rows = 0
    for batch in batches:
        time.sleep(seconds_per_row * batch.num_rows)
        rows += batch.num_rows
    yield pa.RecordBatch.from_pydict({"consumer": [consumer], "rows": [rows]})


SCHEMA = "consumer long, rows long"


def main() -> None:
    spark = start_spark(cores=CONSUMERS)
    documents = spark.range(0, ROWS, 1, CONSUMERS)
    # The option does it for a program that is not changed at all.
    option = {"taskmanager.network.adaptive-partitioner.enabled": True}
    configured = Environment(spark, config=option, progress=False)

    # Each call makes a new DataFrame: a DataFrame that has run already would reuse its shuffle files.
    def program() -> DataFrame:
        return documents.repartition(CONSUMERS).mapInArrow(score, SCHEMA)

    def balanced() -> DataFrame:  # the argument makes this exchange adaptive, without the option
        return penstock.rebalance(documents, CONSUMERS, adaptive=True).map_in_arrow(score, SCHEMA)

    calls = {
        "plain Spark, repartition(4)  ": lambda: program().collect(),
        "penstock.rebalance           ": lambda: balanced().collect(),
        "repartition(4) with an option": lambda: configured.collect(program()),
    }
    for call in calls.values():
        call()  # not measured: the first jobs start Spark's Python processes, one for each task
    runs: dict[str, list[Run]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            runs[name].append(measure(spark, call))
    for name in calls:
        median = sorted(runs[name], key=lambda run: run.seconds)[ROUNDS // 2]
        rows = [row.rows for row in sorted(median.result)]
        assert sum(rows) == ROWS
        print(f"{name}: {median.seconds:.1f} s, rows of each consumer {rows}")
    spark.stop()


if __name__ == "__main__":
    main()
