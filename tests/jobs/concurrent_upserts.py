"""Upserts numbers into a table repeatedly, beside another process that does the same; run by tests.

Arguments: delta or iceberg, a folder, the number of this writer (0 or 1), and the number of upserts. Each upsert writes the
keys 0 to 9, which both writers share, 10 keys of this writer, and a new key.
"""

import os
import sys
import time
from pathlib import Path

kind, folder, writer, times = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import DeltaSink, IcebergSink

catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
env = Environment(builder.config("spark.sql.shuffle.partitions", "2").getOrCreate(), progress=False)
Path(folder, f"ready{writer}").touch()
while not Path(folder, f"ready{1 - writer}").exists():
    time.sleep(0.05)
for number in range(times):
    ids = [*range(10), *range(100 * (writer + 1), 100 * (writer + 1) + 10), 1000 * (writer + 1) + number]
    rows = env.spark.createDataFrame([(n, f"{writer}-{number}") for n in ids], "id long, text string")
    if kind == "delta":
        env.write(rows, DeltaSink(f"{folder}/t", mode="upsert", key="id"))
    else:
        env.write(rows, IcebergSink("n.t", catalog, mode="upsert", key="id"))
    env.execute()
env.spark.stop()
