"""A join whose probe side starts after the build side was measured. Arguments: target, file that marks the start, threshold."""

import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

from penstock import Environment
from penstock.connectors import FileSink

target, reached, threshold = sys.argv[1:4]


def delay(batches):
    Path(reached).touch()
    time.sleep(8)
    yield from batches


env = Environment(
    config={
        "execution.batch.adaptive.whole-query-threshold": 0,
        "table.optimizer.adaptive-broadcast-join.strategy": "RUNTIME_ONLY",
        "table.optimizer.join.broadcast-threshold": threshold,
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "100 kb",
    }
)
users = env.spark.range(0, 100, 1, 2).selectExpr("id as user", "id % 5 as team").where("hash(team) <> 7")
orders = env.spark.range(0, 300_000, 1, 4).selectExpr("id as amount", "id % 100 as customer")
orders = orders.mapInPandas(delay, orders.schema)
revenue = (
    orders.join(users, F.col("customer") == F.col("user"))
    .groupBy("team")
    .agg(F.count("*").alias("n"), F.sum("amount").alias("s"))
)
env.write(revenue, FileSink(target, format="json"))
env.execute("revenue by team")
