"""A job of a user: two inputs, a join, an aggregate, a sink. Arguments: the target, and a file that marks its start."""

import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

from penstock import Environment
from penstock.connectors import FileSink

target, reached = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None


def delay(batches):
    if reached:
        Path(reached).touch()
        time.sleep(8)
    yield from batches


env = Environment(
    config={
        "execution.batch.adaptive.whole-query-threshold": 0,
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "200 kb",
    }
)
orders = env.spark.range(0, 300_000, 1, 4).selectExpr("id as amount", "id % 100 as user")
users = env.spark.range(100).selectExpr("id as user", "id % 5 as team").hint("merge")
joined = orders.join(users, "user")
revenue = (
    joined.mapInPandas(delay, joined.schema).groupBy("team").agg(F.count("*").alias("n"), F.sum("amount").alias("s"))
)
env.write(revenue, FileSink(target, format="json"))
env.execute("revenue by team")
