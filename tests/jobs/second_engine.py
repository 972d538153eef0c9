"""Runs queries with the native engine that is installed, and prints their rows and decisions as JSON.

Arguments: a folder for the table, and what to run ("count", "groups", "lists").
"""

import json
import sys

from penstock import Environment

folder, query = sys.argv[1:]
CONDITION = "v > 500 and name is not null"
THRESHOLD = "execution.batch.adaptive.whole-query-threshold"
VOLUME = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"
options = {THRESHOLD: "1b"} if query == "count" else {THRESHOLD: 0, VOLUME: "8 kb"}  # several tasks exchange their rows
env = Environment(config={"execution.native": True, **options})
env.spark.range(0, 2000, 1, 4).selectExpr(
    "id as v", "if(id % 7 = 0, null, concat('n', id % 3)) as name", "array(id) as list"
).write.parquet(folder)
rows = env.spark.read.parquet(folder)
match query:
    case "count":
        got = [env.count(rows.filter(CONDITION))]
        expected = [rows.filter(CONDITION).count()]
    case "groups":
        groups = rows.filter(CONDITION).groupBy("name").count()
        got, expected = (sorted(map(tuple, result)) for result in (env.collect(groups), groups.collect()))
    case _:
        groups = rows.filter("list[0] > 500").groupBy("name").count()
        got, expected = (sorted(map(tuple, result), key=str) for result in (env.collect(groups), groups.collect()))
decisions = [[decision.kind.value, decision.text] for decision in env.last_job.decisions.records]
print(json.dumps({"rows": got, "expected": expected, "decisions": decisions}))
