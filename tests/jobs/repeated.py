"""Jobs whose tasks fail after they wrote, on a Spark that repeats tasks; prints what the record of each says, as JSON.

Arguments: an empty folder, and of a database its JDBC URL, user, password, driver and jars.
"""

import json
import os
import sys
from pathlib import Path

folder, (url, user, password, driver, jars) = Path(sys.argv[1]), sys.argv[2:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import DeltaSink, FileSink, IcebergSink, JdbcSink
from penstock.history.event_log import LocalFolder
from penstock.history.logs import History

spark = (
    SparkSession.builder.master("local[2,4]")  # on local[2] a task that fails fails its job
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.jars", jars)
    .getOrCreate()
)
rows = spark.range(0, 20_000, 1, 4).selectExpr("id", "id * 2 as v", "id % 3 as p")


def dies_once(marker):
    """A function that gives all its rows, and whose worker dies then, once."""

    def work(batches):
        yield from batches
        if TaskContext.get().partitionId() == 2 and not os.path.exists(marker):
            Path(marker).touch()
            os._exit(9)

    return work


def repeated(name):
    return rows.mapInArrow(dies_once(str(folder / f"{name} died")), rows.schema)


catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/iceberg"}
from pyiceberg.catalog import load_catalog

load_catalog("default", **catalog).create_namespace("n")
files = {
    "files": FileSink(str(folder / "files"), mode="append"),
    "folders": FileSink(str(folder / "folders"), mode="append", partition_by=["p"]),
    "delta": DeltaSink(str(folder / "delta")),
    "iceberg": IcebergSink("n.t", catalog),
}
jdbc = {"user": user, "password": password, "driver": driver}
config = {"execution.batch.adaptive.whole-query-threshold": 0, "jobmanager.archive.fs.dir": str(folder / "logs")}


def failed_tasks(job):
    record = History(LocalFolder(folder / "logs")).record(job.id)
    return sum(task["state"] != "SUCCESS" for tasks in record.tasks.values() for task in tasks)


said = {}
env = Environment(spark, config=config, progress=False)
for name, sink in files.items():
    env.write(repeated(name), sink)
env.execute("files")
said["files"] = failed_tasks(env.last_job)
env.write(rows, JdbcSink(url, "answer_lost", jdbc, token="b"))  # the commit of a task that wrote is not told
env.execute("an answer is lost")
said["answer lost"] = failed_tasks(env.last_job)
env.write(repeated("jdbc"), JdbcSink(url, "worker_died", jdbc, token="a"))
env.execute("a worker dies")
said["worker died"] = failed_tasks(env.last_job)
print("SAID", json.dumps(said), flush=True)
spark.stop()
