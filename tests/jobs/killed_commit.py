"""Writes numbers to two folders and a Delta table, and dies with its JVM at a step of the commit; run by tests.

Arguments: a folder, and the step at which it dies with the number of its call, such as move_to:2, or no. With "no" it
recovers the targets first, and prints the number of rows of each.
"""

import os
import signal
import sys

folder, step = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.commit import Access, recover
from penstock.commit.leftovers import find_journals
from penstock.connectors import DeltaSink, FileSink
from penstock.connectors.delta.commit import PreparedDelta
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath

if step != "no":
    name, _, count = step.partition(":")
    owner, name = (PreparedDelta, "commit") if name == "delta" else (HadoopPath, name)
    original, remaining_calls = getattr(owner, name), [int(count)]

    def call_and_die(*args, **kwargs):
        result = original(*args, **kwargs)
        remaining_calls[0] -= 1
        if remaining_calls[0] == 0:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        return result

    setattr(owner, name, call_and_die)


def count(name: str) -> int:
    if name == "delta":
        import deltalake

        path = f"{folder}/delta"
        return deltalake.DeltaTable(path).to_pyarrow_table().num_rows if deltalake.DeltaTable.is_deltatable(path) else 0
    return env.spark.read.parquet(f"{folder}/{name}").count()


builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
env = Environment(builder.getOrCreate(), progress=False)
if step == "no":
    access = Access(Bridge(env.spark))
    for path in find_journals(access, folder):
        recover(access, path)
    print(*(count(name) for name in ("whole", "parts", "delta")))
rows = env.spark.range(0, 1000, 1, 4).selectExpr("id", "id % 3 as p")
env.write(rows, FileSink(f"{folder}/whole", mode="overwrite"))
env.write(rows, FileSink(f"{folder}/parts", mode="append", partition_by=["p"], token="t"))
env.write(rows, DeltaSink(f"{folder}/delta", token="t"))
env.execute("committed")
