"""Writes to tables of a Hive metastore with partition commit: "write" prints the written tables as JSON.

"die" exits when the files of a job are visible, but its partitions are not registered in the metastore; "repeat" runs the
job again. Arguments: the folder of the metastore, and write, die or repeat.
"""

import json
import os
import sys
from pathlib import Path

folder, action = Path(sys.argv[1]), sys.argv[2]
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock import Environment
from penstock.commit import catalog_tables
from penstock.connectors import TableSink
from penstock.decisions.log import DecisionKind
from tests.support.equality import comparable_value
from tests.support.hive import hive_session

spark = hive_session(folder)
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
POLICY = "TBLPROPERTIES ('sink.partition-commit.policy.kind' = 'metastore,success-file')"
ROWS = "SELECT id, id % 3 AS n, concat('2024-01-0', id % 4) AS day FROM range(0, 1000, 1, 2)"
MORE = "SELECT id, 7L AS n, '2024-01-02' AS day FROM range(0, 10)"
COLUMNS = "(id BIGINT, n BIGINT, day STRING)"
OF_HIVE = "(id BIGINT, n BIGINT) PARTITIONED BY (day STRING)"
TABLES = {
    "of_spark": f"{COLUMNS} USING parquet PARTITIONED BY (day) {POLICY}",
    "hive_parquet": f"{OF_HIVE} STORED AS PARQUET {POLICY}",
    "hive_orc": f"{OF_HIVE} STORED AS ORC {POLICY}",
    "hive_text": f"{OF_HIVE} STORED AS TEXTFILE {POLICY}",
    "hive_flat": "(id BIGINT, n BIGINT, day STRING) STORED AS PARQUET TBLPROPERTIES ('sink.parallelism' = '3')",
}
results = {}
for prefix in ("plain_", "") if action == "write" else ():
    for name, clause in TABLES.items():
        spark.sql(f"CREATE TABLE {prefix}{name} {clause}")


def read_table(name: str) -> dict:
    """Return the rows, registered partitions, and partitions with a success file of a table."""
    location = folder / "warehouse" / name
    partitions = [] if "flat" in name else [row[0] for row in spark.sql(f"SHOW PARTITIONS {name}").collect()]
    return {
        "rows": sorted(map(repr, map(comparable_value, spark.table(name).collect()))),
        "partitions": sorted(partitions),
        "marked": sorted(marker.parent.name for marker in location.glob("*/_SUCCESS")),
    }


if action == "write":
    calls = []
    original = catalog_tables.add_partitions

    def add_partitions(bridge, name, folders):
        """Register partitions, and record the files and markers of the new partitions at that moment."""
        table = folder / "warehouse" / name.rpartition(".")[2].strip("`")
        registered = {row[0] for row in spark.sql(f"SHOW PARTITIONS {table.name}").collect()} if folders else set()
        files = {new: len(list((table / new).glob("part-*"))) for new in folders if new not in registered}
        if files:
            calls.append((table.name, files, [new for new in files if (table / new / "_SUCCESS").exists()]))
        original(bridge, name, folders)

    catalog_tables.add_partitions = add_partitions
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    for name in TABLES:
        by = {}
        for number, (verb, rows) in enumerate((("INTO", ROWS), ("INTO", MORE), ("OVERWRITE", MORE))):
            spark.sql(f"INSERT {verb} plain_{name} {rows}")
            before = env.last_job
            env.sql(f"INSERT {verb} {name} {rows}")
            by[number] = None if env.last_job is before else "penstock"
            expected, actual = read_table(f"plain_{name}"), read_table(name)
            stages = (
                [decision for decision in env.last_job.decisions if decision.kind is DecisionKind.SINK_STAGE]
                if by[number]
                else []
            )
            results[f"{name} {number}"] = {
                "by": by[number],
                "same": expected["rows"] == actual["rows"] and expected["partitions"] == actual["partitions"],
                "marked": actual["marked"],
                "stages": [f"{stage.chosen}: {stage.reason}" for stage in stages],
                "files": len(list((folder / "warehouse" / name).glob("part-*"))),
            }
    marked = []
    sink = TableSink(
        "hive_parquet", "append", partition_commit=["metastore", lambda partition: marked.append(str(partition))]
    )
    env.write(spark.sql(ROWS), sink)
    env.execute()
    expected = sorted(
        [*read_table("plain_hive_parquet")["rows"], *map(repr, map(comparable_value, spark.sql(ROWS).collect()))]
    )
    results["a sink"] = {"same": expected == read_table("hive_parquet")["rows"], "function": sorted(marked)}
    results["metastore calls"] = {
        "after files": all(count > 0 for _, files, _ in calls for count in files.values()),
        "before markers": all(not marked for _, _, marked in calls),
        "new partitions": {name: sorted(files) for name, files, _ in calls},
    }
    try:
        env.write(spark.sql(ROWS), TableSink("hive_text", "append"))
        env.execute()
    except Exception as error:
        results["text by a sink"] = str(error)
elif action == "die":
    spark.sql(f"CREATE TABLE unfinished {TABLES['hive_parquet']}")
    catalog_tables.add_partitions = lambda *_: os._exit(9)
    env.sql(f"INSERT INTO unfinished {ROWS}")
else:
    results["before"] = read_table("unfinished") | {"rows": None}
    env.sql(f"INSERT INTO unfinished {ROWS}")
    results["after"] = read_table("unfinished")
    results["after"]["rows"] = len(results["after"]["rows"])
print("RESULT", json.dumps(results))
