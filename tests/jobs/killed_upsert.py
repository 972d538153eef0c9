"""Upserts numbers into a table, and dies by SIGKILL in a Spark job of a step; run by tests.

Arguments: delta or iceberg, a folder, and the step: ``first`` creates the table, ``none`` upserts without a kill, any
other step is the method whose Spark job is killed.
"""

import os
import signal
import sys
import threading
import time
from typing import Any

kind, folder, step = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import DeltaSink, IcebergSink
from penstock.connectors.tables.commit import Key
from penstock.connectors.tables.table_files import StagedFiles

OWNERS: dict[str, Any] = {"write": StagedFiles, "check": Key, "paths_with_keys": Key, "merge": Key}
catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
env = Environment(spark, progress=False)


def die_in_a_spark_job() -> None:
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.001)
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)  # type: ignore[union-attr]
    os.kill(os.getpid(), signal.SIGKILL)


def killed(method: Any) -> Any:
    def call(*arguments: Any) -> Any:
        threading.Thread(target=die_in_a_spark_job, daemon=True).start()
        return method(*arguments)

    return call


if step in OWNERS:
    setattr(OWNERS[step], step, killed(getattr(OWNERS[step], step)))
ids, text = (range(1000), "old") if step == "first" else (range(500, 1500), "new")
rows = spark.createDataFrame([(n, f"{text} {n}") for n in ids], "id long, text string")
if kind == "delta":
    env.write(rows, DeltaSink(f"{folder}/t", mode="upsert", key="id"))
else:
    env.write(rows, IcebergSink("n.t", catalog, mode="upsert", key="id"))
env.execute()
spark.stop()
