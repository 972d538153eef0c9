"""A job and a rescale that need the package's Java classes; prints their results and the origin of the classes as JSON.

Arguments: a folder to work in.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock.state
from penstock import Environment
from penstock.spark.bridge.java_classes import new_instance
from penstock.spark.bridge.jvm import Bridge
from penstock.state.rewrite_methods import RewriteMethod
from tests.state.queries import BY_NAME, run, write_input

folder = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
spark.range(1).count()
bridge = Bridge(spark)
started = time.perf_counter()
for name in (
    "ScalaValues",
    "SessionSettings",
    "PlanReader",
    "JoinReader",
    "FileRelations",
    "HashedLayout",
    "ScanMetrics",
):
    bridge.helper(name)
seconds = time.perf_counter() - started
for name in ("CoalescedLayouts", "LayoutCheck"):
    bridge.helper(name, on_executors=True)
mover = new_instance(bridge, "KeyGroupMover")

OPTIONS = {
    "execution.batch.adaptive.whole-query-threshold": 0,
    "execution.verify": True,
    "table.optimizer.join.broadcast-threshold": "-1",
}


def revenue(spark: SparkSession) -> list[tuple]:
    orders = spark.range(0, 30_000, 1, 4).selectExpr("id as amount", "id % 100 as user")
    users = spark.range(100).selectExpr("id as user", "id % 5 as team").hint("merge")
    df = orders.join(users, "user").groupBy("team").agg(F.sum("amount").alias("s"))
    return sorted(tuple(row) for row in Environment(spark, config=OPTIONS, progress=False).collect(df))


rows = revenue(spark)

(folder / "in").mkdir(parents=True)
write_input(spark, folder / "in", 0)
query = BY_NAME["counts updated"]
run(spark, query, folder / "in", folder / "checkpoint")
report = penstock.state.rescale(str(folder / "checkpoint"), 8, spark=spark)
after = penstock.state.inspect(str(folder / "checkpoint"), count=True, spark=spark)

code = mover.getClass().getProtectionDomain().getCodeSource()
location = None if code is None else code.getLocation()
loader = str(mover.getClass().getClassLoader().getClass().getSimpleName())
origin = None if location is None else str(location)

spark.stop()
second = SparkSession.builder.getOrCreate()
rows_of_second = revenue(second)
second.stop()

print(
    json.dumps(
        {
            "package": str(Path(penstock.__file__).parent),
            "loader": loader,
            "from": origin,
            "first_use_seconds": round(seconds, 3),
            "rows": rows,
            "rows_of_a_second_application": rows_of_second,
            "files_moved": all(store.method == RewriteMethod.FILES for store in report.stores),
            "state_rows": after.stores[0].total_rows,
        }
    )
)
