"""Queries whose values DuckDB cannot compute, on a Spark that repeats tasks; prints their outcomes as JSON.

Argument: an empty folder.
"""

import json
import os
import sys

folder = sys.argv[1]
os.environ["PYSPARK_PYTHON"] = sys.executable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import Environment
from penstock.duckdb import process
from penstock.duckdb.worker.engine import NotNativeError
from tests.support.native import include_small_tables

spark = (
    SparkSession.builder.master("local[2,4]")  # local[2] does not repeat failed tasks
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
# DuckDB reads the first day as infinite.
days = pa.array([2147483647, 0, 1], pa.int32()).cast(pa.date32())
pq.write_table(pa.table({"k": pa.array([1, 1, 2], pa.int32()), "d": days}), f"{folder}/a.parquet")


def failed_tasks():
    spark._jsc.sc().listenerBus().waitUntilEmpty()  # the counts are updated asynchronously
    stages = map(spark.sparkContext.statusTracker().getStageInfo, range(100))
    return [stage.numFailedTasks for stage in stages if stage is not None and stage.numFailedTasks]


def run(config):
    env = Environment(spark, config=config, progress=False)
    before = failed_tasks()
    rows = env.collect(spark.read.parquet(folder).selectExpr("k", "year(d) y").groupBy("k").sum("y"))
    decision = next(decision for decision in env.last_job.decisions if decision.kind == "native")
    return {
        "rows": sorted(map(list, rows)),
        "failed": failed_tasks()[len(before) :],
        "chosen": str(decision.chosen),
        "reason": decision.reason,
        "outcome": decision.outcome,
    }


def fail(batches):
    raise NotNativeError(f"no rows of {batches}")


def run_without_fallback():
    """Run a job whose rows have no fallback, and return the numbers of failed tasks."""
    before = failed_tasks()
    with pytest.raises(PySparkException):
        spark.range(0, 1, 1, 1).mapInArrow(fail, "id bigint").collect()
    return failed_tasks()[len(before) :]


with pytest.MonkeyPatch.context() as patch:
    include_small_tables(patch)
    patch.setattr(process, "is_available", lambda _: False)  # queries in tasks of Spark
    threshold = "execution.batch.adaptive.whole-query-threshold"
    outcomes = {"part": run({threshold: 0, "execution.native": True}), "query": run({threshold: 1})}
    print(json.dumps(outcomes | {"elsewhere": run_without_fallback()}))
spark.stop()
