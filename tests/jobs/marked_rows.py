"""Sends rows with marks through adaptive exchanges, in a session for each case; prints the arrived rows as JSON.

Arguments: the master, and the Spark settings of each case as JSON.

The mark of a row is a hash of its number and the case, so plans do not contain it. The results have only the numbers, so marks
cross only the exchanges before the functions.
"""

import json
import os
import sys

master, cases = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock
from penstock import Environment

SHARED = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.shuffle.partitions": "4",
    "spark.shuffle.compress": "false",  # so that marks are readable without encryption
    "spark.shuffle.readHostLocalDisk": "false",  # so that executors on a machine send rows over the network
}


def numbers_of_marked(batches):
    """Return the numbers of the rows whose marks arrived in full."""
    for batch in batches:
        is_whole = pa.array([len(mark) == 32 for mark in batch.column("mark").to_pylist()])
        yield pa.record_batch({"id": batch.column("id").filter(is_whole)})


def exchange(case, settings):
    """Return the rows that arrived in a program and in a job, and how the job sent them."""
    builder = SparkSession.builder.master(master)
    for key, value in (SHARED | settings).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        mark = F.md5(F.concat(F.lit(f"{case} "), F.col("id")).cast("binary"))
        rows = spark.range(0, 20_000, 1, 4).select("id", mark.alias("mark"))
        env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
        arrived = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(numbers_of_marked, "id long")
        counts = [arrived.distinct().count(), len({row.id for row in env.collect(arrived)})]
        return {"rows": counts, "edges": [str(edge.partitioner) for edge in env.last_job.graphs.manager.graph.edges]}
    finally:
        spark.stop()


print(
    "RESULT", json.dumps({case: exchange(case, settings) for case, settings in json.loads(cases).items()}), flush=True
)
