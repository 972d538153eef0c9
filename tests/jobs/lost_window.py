"""A window with a hot key is divided, and all shuffle files are deleted before its last tasks read them.

It runs in its own process for the reason in `lost_chunk`. Argument: `stable`, or `unstable` for rows that change when they are
recomputed, which is hidden from the planner. Prints as JSON the number of chunks, whether the row numbers of each key are
right, and the error.
"""

import json
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Environment
from penstock.planner.translation import keyed
from penstock.spark.plans import window_chunks

MAPPERS, ROWS = 8, 3000
SKEW = "table.optimizer.skewed-join-optimization"
VOLUME = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"
OPTIONS = {
    "execution.batch.adaptive.whole-query-threshold": 0,
    VOLUME: "64 kb",
    f"{SKEW}.skewed-threshold": "60 kb",
    f"{SKEW}.strategy": "FORCED",
}

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "8")
    .getOrCreate()
)
value = F.expr("pmod(hash(id), 2000)")
if sys.argv[1] == "unstable":
    value = F.udf(lambda _: random.randrange(1 << 40), "long").asNondeterministic()("id")
    keyed.unrepeatable_reason = lambda _: None

original = window_chunks.run_window


def delete_shuffle_files(*arguments):
    rows = original(*arguments)
    for folder in os.environ["SPARK_LOCAL_DIRS"].split(","):
        for file in Path(folder).rglob("shuffle_*.data"):
            file.unlink()
    return rows


window_chunks.run_window = delete_shuffle_files
rows = spark.range(0, MAPPERS * ROWS, 1, MAPPERS).selectExpr("if(pmod(hash(id, 1), 10) < 9, 7, id % 20) as k", "id")
rows.withColumn("v", value).createOrReplaceTempView("clicks")
env = Environment(spark, config=OPTIONS, progress=False)
query = "select k, v, id, row_number() over (partition by k order by v, id) as n from clicks"
collected, error = [], ""
try:
    collected = env.collect(spark.sql(query))
except Exception as failure:
    error = str(failure)
by_key = defaultdict(list)
for row in collected:
    by_key[row.k].append(row)
right = all(
    [row.n for row in sorted(of_key, key=lambda row: (row.v, row.id))] == list(range(1, len(of_key) + 1))
    for of_key in by_key.values()
)
chunks = max((decision.outcome.get("pieces", 0) for decision in env.last_job.decisions), default=0)
print(json.dumps({"pieces": chunks, "rows": len(collected), "right": right, "error": error}))
spark.stop()
