"""A function reads an exchange in chunks, deletes all shuffle files, and ignores errors; prints the ids as JSON.

It runs in its own process, because Spark unregisters the executor of a local master after the loss of a file, and ends the
process ten minutes later. Argument: a path that is created when the files are deleted.
"""

import json
import os
import sys
from pathlib import Path

marker = Path(sys.argv[1])
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import penstock
from penstock import Environment

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)


def careless(batches):
    try:
        for number, batch in enumerate(batches):
            if number == 2 and not marker.exists():
                marker.touch()
                for folder in os.environ["SPARK_LOCAL_DIRS"].split(","):
                    for file in Path(folder).rglob("shuffle_*.data"):
                        file.unlink()
            yield batch
    except Exception:
        return


spread = penstock.rebalance(spark.range(0, 6000, 1, 3), 6, adaptive=True)
print(json.dumps(sorted(row["id"] for row in env.collect(spread.map_in_arrow(careless, "id long")))))
spark.stop()
