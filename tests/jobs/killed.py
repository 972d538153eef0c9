"""Jobs on a cluster whose workers are killed while a stage runs; prints what came of each, as JSON.

Arguments: the master, of two workers with two cores each, and an empty folder.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

master, folder = sys.argv[1], Path(sys.argv[2])
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from penstock.connectors import FileSink
from penstock.history.event_log import LocalFolder
from penstock.history.logs import History
from tests.equality import assert_same_rows

builder = SparkSession.builder.master(master)
for key, value in {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "700m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

CONFIG = {
    "execution.batch.adaptive.whole-query-threshold": 0,
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "100 kb",
    "execution.verify": True,
    "jobmanager.archive.fs.dir": str(folder / "logs"),
}
KILLER = 3  # the task that kills waits until the other three have ended: what they wrote is lost with it


def _parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def killing(marker, whole_worker=False):
    """A function that gives its rows, and once kills the executor it runs on, or its worker as well."""

    def work(batches):
        yield from batches
        if TaskContext.get().partitionId() == KILLER and not os.path.exists(marker):
            time.sleep(2)
            Path(marker).touch()
            executor = _parent(os.getppid())  # the parent of Python's daemon
            if whole_worker:
                os.kill(_parent(executor), signal.SIGKILL)
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)

    return work


def slowly(batches):
    """Keeps its slot, so that each executor has tasks of the stage."""
    time.sleep(1)
    yield from batches


def killed_in(df, marker, **how):
    return df.mapInArrow(killing(str(folder / marker), **how), df.schema)


orders = spark.range(0, 60_000, 1, 4).selectExpr("id as amount", "id % 100 as user")
users = spark.range(0, 100, 1, 2).selectExpr("id as user", "id % 5 as team").hint("merge")


def revenue(rows):
    return rows.join(users, "user").groupBy("team").agg(F.count("*").alias("n"), F.sum("amount").alias("s"))


def tasks_of(job):
    """The tasks of a job as its record has them, and what was repeated: tasks that failed, and those that succeeded more than once."""
    record = History(LocalFolder(folder / "logs")).record(job.id)
    tasks = [dict(task, vertex=vertex) for vertex, found in record.tasks.items() for task in found]
    succeeded = [(task["stage"], task["index"]) for task in tasks if task["state"] == "SUCCESS"]
    return {
        "state": record.state,
        "failed": sum(task["state"] != "SUCCESS" for task in tasks),
        "again": len(succeeded) - len(set(succeeded)),
        "rows_out": [vertex["rows_out"] for vertex in record.vertices.values()],
        "places": [[task["vertex"], task["stage"], task["attempt"], task["index"], task["state"]] for task in tasks],
    }


def shuffled():
    """The map side of a shuffle: what the executor had written is lost with it."""
    env = Environment(spark, config=CONFIG, progress=False)
    found = env.collect(revenue(killed_in(orders, "shuffled")))
    assert_same_rows(found, revenue(orders).collect())
    return env.last_job


def broadcast():
    """A side that turns out small: the rows of tasks that ran twice are counted once."""
    options = {
        "table.optimizer.adaptive-broadcast-join.strategy": "RUNTIME_ONLY",
        "table.optimizer.join.broadcast-threshold": "10 mb",
    }
    env = Environment(spark, config=CONFIG | options, progress=False)
    few = spark.range(0, 100, 1, 4).selectExpr("id as k", "id % 5 as team")

    def joined(side):
        side = side.where("hash(team) <> 7")
        return orders.join(side, F.col("user") == F.col("k")).groupBy("team").agg(F.count("*"), F.sum("amount"))

    assert_same_rows(env.collect(joined(killed_in(few, "broadcast"))), joined(few).collect())
    assert "right" in [
        str(decision.chosen) for decision in env.last_job.decisions if decision.kind.value == "broadcast"
    ]
    return env.last_job


def behind():
    """A stage that reads a shuffle: the stage before it must run again for what was on the executor."""
    env = Environment(spark, config=CONFIG, progress=False)
    rows = orders.mapInArrow(slowly, orders.schema).repartition(4, "user")
    found = env.collect(killed_in(rows, "behind").groupBy("user").agg(F.sum("amount")))
    assert_same_rows(found, rows.groupBy("user").agg(F.sum("amount")).collect())
    return env.last_job


def where(batches):
    for batch in batches:
        yield pa.record_batch(
            {
                "amount": batch.column(0),
                "reader": pa.array([TaskContext.get().partitionId()] * batch.num_rows, pa.int32()),
            }
        )


def exchanged():
    """Behind an adaptive exchange: its rows come once, also if it ran again and dealt them out otherwise."""
    env = Environment(spark, config=CONFIG, progress=False)
    dealt = penstock.rebalance(orders.select("amount"), 4, adaptive=True).map_in_arrow(where, "amount long, reader int")
    found = env.collect(killed_in(dealt, "exchanged").select("amount"))
    assert_same_rows(found, orders.select("amount").collect())
    assert any(decision.kind.value == "rebalance" for decision in env.last_job.decisions)
    return env.last_job


def written():
    """Files: tasks of the sink's own stage are lost with their worker after they wrote."""
    env = Environment(spark, config=CONFIG, progress=False)
    rows = orders.repartition(4, "user")
    env.write(killed_in(rows, "written", whole_worker=True), FileSink(str(folder / "out"), mode="append"))
    env.execute("files")
    assert_same_rows(spark.read.parquet(str(folder / "out")).collect(), orders.collect())
    return env.last_job


def wait_for_executors():
    """Until the one that was killed is there again."""
    deadline = time.time() + 30
    context = spark.sparkContext._jsc.sc()
    while (
        context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()) < 4
        and time.time() < deadline
    ):
        time.sleep(0.2)


said = {}
for case in (shuffled, broadcast, behind, exchanged, written):
    wait_for_executors()
    started = time.time()
    try:
        said[case.__name__] = tasks_of(case()) | {"rows": "same"}
    except Exception as error:
        said[case.__name__] = {"rows": f"{type(error).__name__}: {error}"[:1500]}
    said[case.__name__] |= {"killed": (folder / case.__name__).exists(), "seconds": round(time.time() - started, 1)}
print("SAID", json.dumps(said), flush=True)
spark.stop()
