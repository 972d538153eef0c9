"""Tables of a Hive metastore: "die" kills jobs that write them, "recover" runs statements on them.

Arguments: the folder of the metastore, and die or recover. The second prints the outcome of each statement as JSON.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

folder, action = Path(sys.argv[1]), sys.argv[2]
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock import Environment
from penstock.commit import catalog_tables
from penstock.connectors import FileSink, TableSink
from tests.support.hive import hive_session
from tests.support.outcomes import outcome

spark = hive_session(folder)
CREATE = "create table {} using parquet as select id from range(10)"
STATEMENTS = {
    "created": CREATE,
    "if_not_exists": CREATE.replace("table", "table if not exists"),
    "inserted": "insert into {} values (7L)",
    "overwritten": "insert into {} select 3L as id, 3 as p",
}
"""The statement that runs after the job has died, by the name of its table."""
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)


def write(name: str) -> None:
    """Write a table, and a folder that is committed after it."""
    rows = spark.sql("select 2L as id, 2 as p") if name == "overwritten" else spark.range(5)
    env.write(rows, TableSink(name, mode="overwrite"))
    env.write(spark.range(5), FileSink(str(folder / name)))
    env.execute()


def die() -> None:
    """Exit when the tables are registered in the catalog, but the folders are not committed."""
    spark.sql("create table overwritten using parquet partitioned by (p) as select 1L as id, 1 as p")
    arrived = threading.Semaphore(0)

    def wait(*_: object) -> None:
        arrived.release()
        time.sleep(600)

    catalog_tables.update_statistics = wait
    for name in STATEMENTS:
        threading.Thread(target=write, args=(name,), daemon=True).start()
    for _ in STATEMENTS:
        assert arrived.acquire(timeout=120)
    os._exit(9)


def recover() -> None:
    results = {}
    for name, statement in STATEMENTS.items():
        result = outcome(lambda statement=statement, name=name: env.sql(statement.format(name)).collect())
        exists = spark.catalog.tableExists(name)
        rows = sorted(row[0] for row in spark.table(name).collect()) if exists else None
        results[name] = [result, rows]
    print("RESULT", json.dumps(results))


{"die": die, "recover": recover}[action]()
