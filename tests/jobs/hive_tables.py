"""Tables of an embedded Hive metastore, read and written; prints decisions and actual tasks as JSON.

Arguments: an empty folder, and the names of queries.
"""

import json
import os
import sys
from pathlib import Path

folder, names = Path(sys.argv[1]), sys.argv[2:]
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock import Environment
from penstock.connectors import FileSink
from tests.support.equality import comparable_value
from tests.support.hive import hive_session
from tests.support.stages import stages

spark = hive_session(folder)
events = spark.range(0, 20_000, 1, 2).selectExpr(
    "id", "repeat(concat('event ', id, ' '), 8) as text", "concat('2024-01-', lpad(id % 8 + 1, 2, '0')) as day"
)
for name, stored in (("events_text", "TEXTFILE"), ("events_parquet", "PARQUET")):
    spark.sql(f"CREATE TABLE {name} (id BIGINT, text STRING) PARTITIONED BY (day STRING) STORED AS {stored}")
    events.write.insertInto(name)
spark.sql("CREATE TABLE flat_text (id BIGINT, text STRING) STORED AS TEXTFILE")
events.drop("day").write.insertInto("flat_text")
spark.sql("CREATE TABLE nothing_text (id BIGINT) PARTITIONED BY (day STRING) STORED AS TEXTFILE")
spark.createDataFrame([("2024-01-03", 1), ("2024-01-05", 1), ("2024-01-07", 0)], "day string, keep int").write.parquet(
    str(folder / "days")
)
spark.read.parquet(str(folder / "days")).createOrReplaceTempView("days")
OFF = {
    "execution.batch.adaptive.whole-query-threshold": 0,
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "256 kb",
    "table.optimizer.adaptive-broadcast-join.strategy": "AUTO",
}
MODE = "table.exec.hive.infer-source-parallelism."
QUERIES = {
    "text": ("SELECT id, day FROM events_text WHERE text LIKE '%9%'", {}),
    "text, single partition": ("SELECT count(*), sum(id) FROM events_text WHERE day = '2024-01-04'", {}),
    "text, filtered by a join": (
        "SELECT e.day, count(*), sum(e.id) FROM events_text e JOIN days d ON e.day = d.day WHERE d.keep = 1 GROUP BY e.day",
        {},
    ),
    "text, few large tasks": (
        "SELECT count(*), sum(id) FROM events_text",
        {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "64 mb"},
    ),
    "text, static": ("SELECT count(*), sum(id) FROM events_text", {MODE + "mode": "static", MODE + "max": 3}),
    "text, static, limited": (
        "SELECT count(*) FROM (SELECT id FROM events_text LIMIT 2000)",
        {MODE + "mode": "static", MODE + "max": 3},
    ),
    "text, static, limited behind a filter": (
        "SELECT count(*) FROM (SELECT id FROM events_text WHERE id % 2 = 0 LIMIT 2000)",
        {MODE + "mode": "static", MODE + "max": 3},
    ),
    "text, none": ("SELECT count(*), sum(id) FROM events_text", {MODE + "mode": "none", "parallelism.default": 5}),
    "text, scan.parallelism": (
        "SELECT count(*), sum(id) FROM events_text",
        {MODE + "mode": "static", "scan.parallelism": 6},
    ),
    "text without partitions": ("SELECT count(*), sum(id) FROM flat_text", {}),
    "text, empty": ("SELECT count(*), sum(id) FROM nothing_text", {}),
    "parquet": ("SELECT id, text, day FROM events_parquet", {}),
    "parquet, single partition": ("SELECT count(*), sum(id) FROM events_parquet WHERE day = '2024-01-04'", {}),
    "parquet, filtered by a join": (
        "SELECT e.day, count(*), sum(e.id) FROM events_parquet e JOIN days d ON e.day = d.day WHERE d.keep = 1 GROUP BY e.day",
        {},
    ),
    "parquet, static": ("SELECT count(*), max(text) FROM events_parquet", {MODE + "mode": "static", MODE + "max": 3}),
    "parquet, none": (
        "SELECT count(*), max(text) FROM events_parquet",
        {MODE + "mode": "none", "parallelism.default": 5},
    ),
}
results = {}
for name in names:
    query, options = QUERIES[name]
    env = Environment(spark, config=OFF | options, progress=False)
    rows = env.collect(spark.sql(query))
    expected = spark.sql(query).collect()
    sources = [
        vertex for vertex in env.last_job.vertices if "events" in vertex.vertex.name or "text" in vertex.vertex.name
    ]
    results[name] = {
        "same": sorted(map(repr, map(comparable_value, rows))) == sorted(map(repr, map(comparable_value, expected))),
        "rows": len(rows),
        "parallelism": sources[0].parallelism,
        "tasks": sources[0].tasks,
        "reason": sources[0].reason,
        "bytes": sources[0].bytes_in,
        "stage tasks": max((stage.tasks for stage in stages(spark, env.last_job, sources[0].vertex.name)), default=0),
    }

spark.sql(
    f"CREATE TABLE copied (id BIGINT, text STRING, day STRING) USING parquet PARTITIONED BY (day) LOCATION '{folder}/copied'"
)
env = Environment(spark, config=OFF, progress=False)
sink = FileSink(
    str(folder / "copied"),
    mode="append",
    partition_by=["day"],
    table="copied",
    partition_commit=["metastore", "success-file"],
)
for _ in range(2):
    env.write(spark.table("events_text"), sink)
    env.execute("copy")
results["metastore"] = {
    "partitions": sorted(row[0] for row in spark.sql("SHOW PARTITIONS copied").collect()),
    "rows": spark.table("copied").count(),
    "rows of a partition": spark.table("copied").filter("day = '2024-01-02'").count(),
    "markers": len(list((folder / "copied").glob("day=*/_SUCCESS"))),
    "reason": env.last_job.vertices[-1].reason,
}
print("RESULT", json.dumps(results))
