"""Jobs on a cluster whose executors are killed while a stage runs; prints a report of each job as JSON.

Arguments: the master of a cluster of two workers with two cores each, and an empty folder.
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
from tests.support.equality import assert_same_rows

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
KILLER = 3  # this task waits for the end of the other three, so that their output is lost with the executor


def _parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def killing(marker, whole_worker=False):
    """Return a function that kills its executor once after all rows, and with `whole_worker` also the worker."""

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


def delay(batches):
    """Occupy the slot for a second, so that each executor has tasks of the stage."""
    time.sleep(1)
    yield from batches


def killed_in(df, marker, **options):
    return df.mapInArrow(killing(str(folder / marker), **options), df.schema)


orders = spark.range(0, 60_000, 1, 4).selectExpr("id as amount", "id % 100 as user")
users = spark.range(0, 100, 1, 2).selectExpr("id as user", "id % 5 as team").hint("merge")


def revenue(rows):
    return rows.join(users, "user").groupBy("team").agg(F.count("*").alias("n"), F.sum("amount").alias("s"))


def tasks_of(job):
    """Return the recorded tasks of a job, with the number of failed tasks and of repeated successful tasks."""
    record = History(LocalFolder(folder / "logs")).record(job.id)
    tasks = [(vertex, task) for vertex, in_vertex in record.tasks.items() for task in in_vertex]
    succeeded = [(task.stage, task.index) for _, task in tasks if task.state == "SUCCESS"]
    return {
        "state": record.state,
        "failed": sum(task.state != "SUCCESS" for _, task in tasks),
        "again": len(succeeded) - len(set(succeeded)),
        "rows_out": [vertex.rows_out for vertex in record.vertices.values()],
        "attempts": [[vertex, task.stage, task.attempt, task.index, task.state] for vertex, task in tasks],
    }


def shuffled():
    """Lose the map output of an executor."""
    env = Environment(spark, config=CONFIG, progress=False)
    collected = env.collect(revenue(killed_in(orders, "shuffled")))
    assert_same_rows(collected, revenue(orders).collect())
    return env.last_job


def broadcast():
    """Broadcast a side whose repeated tasks must be counted once."""
    options = {
        "table.optimizer.adaptive-broadcast-join.strategy": "RUNTIME_ONLY",
        "table.optimizer.join.broadcast-threshold": "10 mb",
    }
    env = Environment(spark, config=CONFIG | options, progress=False)
    teams = spark.range(0, 100, 1, 4).selectExpr("id as k", "id % 5 as team")

    def joined(side):
        side = side.where("hash(team) <> 7")
        return orders.join(side, F.col("user") == F.col("k")).groupBy("team").agg(F.count("*"), F.sum("amount"))

    assert_same_rows(env.collect(joined(killed_in(teams, "broadcast"))), joined(teams).collect())
    assert "right" in [
        str(decision.chosen) for decision in env.last_job.decisions if decision.kind.value == "broadcast"
    ]
    return env.last_job


def behind():
    """Kill an executor in a stage that reads a shuffle, so that the stage before must be repeated."""
    env = Environment(spark, config=CONFIG, progress=False)
    rows = orders.mapInArrow(delay, orders.schema).repartition(4, "user")
    collected = env.collect(killed_in(rows, "behind").groupBy("user").agg(F.sum("amount")))
    assert_same_rows(collected, rows.groupBy("user").agg(F.sum("amount")).collect())
    return env.last_job


def with_reader(batches):
    """Add the number of the task that reads each row."""
    for batch in batches:
        yield pa.record_batch(
            {
                "amount": batch.column(0),
                "reader": pa.array([TaskContext.get().partitionId()] * batch.num_rows, pa.int32()),
            }
        )


def exchanged():
    """Read an adaptive exchange that is repeated with another distribution of its rows."""
    env = Environment(spark, config=CONFIG, progress=False)
    spread = penstock.rebalance(orders.select("amount"), 4, adaptive=True)
    read = spread.map_in_arrow(with_reader, "amount long, reader int")
    collected = env.collect(killed_in(read, "exchanged").select("amount"))
    assert_same_rows(collected, orders.select("amount").collect())
    assert any(decision.kind.value == "rebalance" for decision in env.last_job.decisions)
    return env.last_job


def written():
    """Kill the worker in the stage of a sink, after its tasks have written files."""
    env = Environment(spark, config=CONFIG, progress=False)
    rows = orders.repartition(4, "user")
    env.write(killed_in(rows, "written", whole_worker=True), FileSink(str(folder / "out"), mode="append"))
    env.execute("files")
    assert_same_rows(spark.read.parquet(str(folder / "out")).collect(), orders.collect())
    return env.last_job


def wait_for_executors():
    """Wait until the killed executor is replaced."""
    deadline = time.time() + 30
    context = spark.sparkContext._jsc.sc()
    while (
        context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()) < 4
        and time.time() < deadline
    ):
        time.sleep(0.2)


reports = {}
for case in (shuffled, broadcast, behind, exchanged, written):
    wait_for_executors()
    started = time.time()
    try:
        reports[case.__name__] = tasks_of(case()) | {"rows": "same"}
    except Exception as error:
        reports[case.__name__] = {"rows": f"{type(error).__name__}: {error}"[:1500]}
    reports[case.__name__] |= {"killed": (folder / case.__name__).exists(), "seconds": round(time.time() - started, 1)}
print("RESULT", json.dumps(reports), flush=True)
spark.stop()
