"""Tables of a Hive metastore written with partition commit: "write" prints what came of them, as JSON.

"die" leaves a job half-way whose files are in their places, and of which the metastore has heard nothing; "again" runs it
once more. Arguments: the folder of the metastore, and write, die or again.
"""

import json
import os
import sys
from pathlib import Path

folder, what = Path(sys.argv[1]), sys.argv[2]
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock import Environment
from penstock.commit import catalog_tables
from penstock.connectors import TableSink
from penstock.decisions import DecisionKind
from tests.equality import plain
from tests.hive import hive_session

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
found = {}
for prefix in ("plain_", "") if what == "write" else ():
    for name, clause in TABLES.items():
        spark.sql(f"CREATE TABLE {prefix}{name} {clause}")


def seen(name: str) -> dict:
    """Return what the metastore and the folder of a table hold, and its rows."""
    place = folder / "warehouse" / name
    partitions = [] if "flat" in name else [row[0] for row in spark.sql(f"SHOW PARTITIONS {name}").collect()]
    return {
        "rows": sorted(map(repr, map(plain, spark.table(name).collect()))),
        "partitions": sorted(partitions),
        "marked": sorted(one.parent.name for one in place.glob("*/_SUCCESS")),
    }


if what == "write":
    told = []
    plainly = catalog_tables.add_partitions

    def add_partitions(bridge, name, folders):
        """As Penstock tells the metastore, noting what is there at that moment of partitions that it does not know."""
        place = folder / "warehouse" / name.rpartition(".")[2].strip("`")
        known = {row[0] for row in spark.sql(f"SHOW PARTITIONS {place.name}").collect()} if folders else set()
        files = {one: len(list((place / one).glob("part-*"))) for one in folders if one not in known}
        if files:
            told.append((place.name, files, [one for one in files if (place / one / "_SUCCESS").exists()]))
        plainly(bridge, name, folders)

    catalog_tables.add_partitions = add_partitions
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    for name in TABLES:
        by = {}
        for number, (verb, rows) in enumerate((("INTO", ROWS), ("INTO", MORE), ("OVERWRITE", MORE))):
            spark.sql(f"INSERT {verb} plain_{name} {rows}")
            before = env.last_job
            env.sql(f"INSERT {verb} {name} {rows}")
            by[number] = None if env.last_job is before else "penstock"
            expected, got = seen(f"plain_{name}"), seen(name)
            stages = (
                [one for one in env.last_job.decisions if one.kind is DecisionKind.SINK_STAGE] if by[number] else []
            )
            found[f"{name} {number}"] = {
                "by": by[number],
                "same": expected["rows"] == got["rows"] and expected["partitions"] == got["partitions"],
                "marked": got["marked"],
                "stages": [f"{one.chosen}: {one.reason}" for one in stages],
                "files": len(list((folder / "warehouse" / name).glob("part-*"))),
            }
    marked = []
    sink = TableSink("hive_parquet", "append", partition_commit=["metastore", lambda one: marked.append(str(one))])
    env.write(spark.sql(ROWS), sink)
    env.execute()
    expected = sorted([*seen("plain_hive_parquet")["rows"], *map(repr, map(plain, spark.sql(ROWS).collect()))])
    found["a sink"] = {"same": expected == seen("hive_parquet")["rows"], "function": sorted(marked)}
    found["told"] = {
        "files were there": all(files[one] > 0 for _, files, _ in told for one in files),
        "markers were not": all(not marked for _, _, marked in told),
        "new partitions": {name: sorted(files) for name, files, _ in told},
    }
    try:
        env.write(spark.sql(ROWS), TableSink("hive_text", "append"))
        env.execute()
    except Exception as error:
        found["text by a sink"] = str(error)
elif what == "die":
    spark.sql(f"CREATE TABLE half {TABLES['hive_parquet']}")
    catalog_tables.add_partitions = lambda *_: os._exit(9)
    env.sql(f"INSERT INTO half {ROWS}")
else:
    found["before"] = seen("half") | {"rows": None}
    env.sql(f"INSERT INTO half {ROWS}")
    found["after"] = seen("half")
    found["after"]["rows"] = len(found["after"]["rows"])
print("SAID", json.dumps(found))
