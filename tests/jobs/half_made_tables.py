"""Tables of a Hive metastore: "die" leaves jobs that write them half-way, "again" runs statements that write them too.

Arguments: the folder of the metastore, and die or again. The second prints what each statement gave, as JSON.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

folder, what = Path(sys.argv[1]), sys.argv[2]
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock import Environment
from penstock.commit import catalog_tables
from penstock.connectors import FileSink, TableSink
from tests.hive import hive_session
from tests.outcomes import outcome

spark = hive_session(folder)
MADE = "create table {} using parquet as select id from range(10)"
AGAIN = {
    "made": MADE,
    "if_not_exists": MADE.replace("table", "table if not exists"),
    "inserted": "insert into {} values (7L)",
    "overwritten": "insert into {} select 3L as id, 3 as p",
}
"""The statement that comes after the job that died, by the name of its table."""
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)


def write(name: str) -> None:
    """Write a table, and a folder that commits after it."""
    rows = spark.sql("select 2L as id, 2 as p") if name == "overwritten" else spark.range(5)
    env.write(rows, TableSink(name, mode="overwrite"))
    env.write(spark.range(5), FileSink(str(folder / name)))
    env.execute()


def die() -> None:
    """Leave the tables with the catalogue told of them, and the folders not there."""
    spark.sql("create table overwritten using parquet partitioned by (p) as select 1L as id, 1 as p")
    arrived = threading.Semaphore(0)

    def last(*_: object) -> None:
        arrived.release()
        time.sleep(600)

    catalog_tables.update_statistics = last
    for name in AGAIN:
        threading.Thread(target=write, args=(name,), daemon=True).start()
    for _ in AGAIN:
        assert arrived.acquire(timeout=120)
    os._exit(9)


def again() -> None:
    said = {}
    for name, statement in AGAIN.items():
        found = outcome(lambda statement=statement, name=name: env.sql(statement.format(name)).collect())
        there = spark.catalog.tableExists(name)
        rows = sorted(row[0] for row in spark.table(name).collect()) if there else None
        said[name] = [found, rows]
    print("SAID", json.dumps(said))


{"die": die, "again": again}[what]()
