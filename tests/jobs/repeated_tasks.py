"""Jobs whose tasks fail after they have written, on a Spark that repeats tasks; prints their numbers of failed tasks as JSON.

Arguments: an empty folder, and the JDBC URL, user, password, driver and jars of a database.
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
    SparkSession.builder.master("local[2,4]")  # local[2] does not repeat failed tasks
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
    """Return a function whose worker dies once after all rows."""

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
    return sum(task.state != "SUCCESS" for tasks in record.tasks.values() for task in tasks)


results = {}
env = Environment(spark, config=config, progress=False)
for name, sink in files.items():
    env.write(repeated(name), sink)
env.execute("files")
results["files"] = failed_tasks(env.last_job)
env.write(rows, JdbcSink(url, "answer_lost", jdbc, token="b"))  # the answer to a task's commit is lost
env.execute("an answer is lost")
results["answer lost"] = failed_tasks(env.last_job)
env.write(repeated("jdbc"), JdbcSink(url, "worker_died", jdbc, token="a"))
env.execute("a worker dies")
results["worker died"] = failed_tasks(env.last_job)
print("RESULT", json.dumps(results), flush=True)
spark.stop()
