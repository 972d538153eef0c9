"""Adaptive exchanges on a session with many slots; prints the result of each case as JSON.

Arguments: the master, an empty folder, and the names of cases (default: all that need no cluster).
"""

import dataclasses
import datetime as dt
import decimal
import json
import os
import random
import sys
import time
from pathlib import Path

master, folder, *names = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

import pyarrow as pa
import pyarrow.compute
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

import penstock
from penstock import Environment
from penstock.connectors import FileSink
from penstock.rebalance import operator
from penstock.rebalance.task import MAX_QUEUED_BYTES

spark = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    .config("spark.sql.shuffle.partitions", "4")
    .getOrCreate()
)
OFF = {"execution.batch.adaptive.whole-query-threshold": 0}
ON = OFF | {"taskmanager.network.adaptive-partitioner.enabled": True}


def with_reader(batches):
    """Add the number of the consumer of each row."""
    index = TaskContext.get().partitionId()
    for batch in batches:
        yield pa.record_batch({"id": batch.column("id"), "reader": pa.array([index] * batch.num_rows, pa.int32())})


WITH_READER = "id long, reader int"


def summarize(df):
    """Return the count, sum and distinct count of the ids; a sum is None without rows."""
    row = df.agg(F.count("*"), F.sum("id"), F.countDistinct("id")).first()
    return [None if value is None else int(value) for value in row]


def check_exchange(rows, exchanged, function=with_reader, schema=WITH_READER):
    """Return whether an exchange gives each row once, and the number of consumers with rows."""
    out = exchanged.map_in_arrow(function, schema)
    readers = out.select("reader").distinct().count()
    return {"same": summarize(out) == summarize(rows), "readers": readers}


def shapes():
    for name, rows, readers in (
        ("plain", spark.range(0, 10_000, 1, 4), 4),
        ("empty partitions", spark.range(0, 10_000, 1, 4).filter("id < 100"), 4),
        ("all empty", spark.range(0, 100, 1, 4).filter("id < 0"), 3),
        ("fewer rows than readers", spark.range(0, 2, 1, 2), 6),
        ("one reader", spark.range(0, 1000, 1, 3), 1),
        ("fewer readers than writers", spark.range(0, 10_000, 1, 6), 2),
        ("more readers than writers", spark.range(0, 10_000, 1, 2), 6),
        ("behind a shuffle", spark.range(0, 10_000, 1, 4).groupBy("id").count().select("id"), 4),
        ("more partitions than slots", spark.range(0, 10_000, 1, 40), 4),
    ):
        yield (
            f"rebalance, {name}",
            lambda rows=rows, readers=readers: check_exchange(rows, penstock.rebalance(rows, readers, adaptive=True)),
        )
    for writers, readers in ((2, 6), (2, 4), (6, 2), (3, 3)):
        rows = spark.range(0, 12_000, 1, writers)
        yield (
            f"rescale {writers} to {readers}",
            lambda rows=rows, readers=readers: check_exchange(rows, penstock.rescale(rows, readers, adaptive=True)),
        )


def values():
    """Exchange rows with values of many types and of large sizes."""
    rows = [
        (
            1,
            "a" * (1 << 20),
            decimal.Decimal("1.50"),
            dt.datetime(2024, 3, 31, 2, 30),
            dt.date(1582, 10, 4),
            [1, None],
            {"k": 1},
            (1, "x"),
            b"\x00",
            1.5,
            None,
        ),
        (2, None, None, None, None, None, None, None, None, None, None),
        (
            3,
            "",
            decimal.Decimal("-99.99"),
            dt.datetime(1900, 1, 1),
            dt.date(9999, 12, 31),
            [],
            {},
            (None, None),
            b"",
            float("nan"),
            None,
        ),
    ] * 20
    schema = (
        "id long, text string, price decimal(9, 2), at timestamp, day date, list array<int>, map map<string, int>,"
        " inner struct<a: int, b: string>, raw binary, ratio double, nothing void"
    )
    df = spark.createDataFrame(rows, schema).drop("nothing").repartition(3)
    out = penstock.rebalance(df, 3, adaptive=True).dataframe()
    assert out.schema.simpleString() == df.schema.simpleString()
    return {"same": sorted(map(repr, out.collect())) == sorted(map(repr, df.collect()))}


def pandas():
    df = spark.range(0, 5000, 1, 3).selectExpr(
        "id",
        "concat('t', id) as text",
        "cast(id as decimal(9, 2)) as price",
        "timestamp_seconds(id * 4000) as at",
        "date_add(date '2024-01-01', int(id % 9)) as day",
        "id % 2 = 0 as even",
        "if(id % 5 = 0, null, id) as gap",
    )

    def changed(frames):
        for frame in frames:
            yield frame[frame["id"] % 3 > 0].assign(text=frame["text"] + "!", hour=frame["at"].dt.hour)

    schema = StructType([*df.schema.fields, StructField("hour", IntegerType())])
    out = penstock.rebalance(df, 3, adaptive=True).map_in_pandas(changed, schema)
    plain = df.mapInPandas(changed, schema)
    return {"same": sorted(map(repr, out.collect())) == sorted(map(repr, plain.collect()))}


def early():
    def first(batches):
        for batch in batches:
            yield batch.slice(0, 1)
            return

    out = penstock.rebalance(spark.range(0, 50_000, 1, 4), 4, adaptive=True).map_in_arrow(first, "id long")
    return {"same": 1 <= out.count() <= 4}


def more_and_fewer():
    def multiplied(batches):
        for batch in batches:
            for _ in range(batch.num_rows % 3):
                yield batch
            yield batch.slice(0, 0)

    def sliced(batches):
        for batch in batches:
            yield pa.record_batch({"id": pa.array([x for x in batch.column(0).to_pylist() if x % 2], pa.int64())})

    rows = spark.range(0, 9000, 1, 3)
    odd = penstock.rebalance(rows, 3, adaptive=True).map_in_arrow(sliced, "id long")
    many = penstock.rebalance(rows, 3, adaptive=True).map_in_arrow(multiplied, "id long")
    return {"same": summarize(odd) == summarize(rows.filter("id % 2 = 1")) and many.distinct().count() <= 9000}


def after():
    """Run operations on an exchange that Spark refuses for barrier stages."""
    rows = spark.range(0, 8000, 1, 4)
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(with_reader, WITH_READER)
    second = penstock.rebalance(out, 2, adaptive=True).map_in_arrow(with_reader, WITH_READER)
    out.write.parquet(f"{folder}/after")
    return {
        "same": summarize(out.union(out).coalesce(2)) == [16_000, 2 * sum(range(8000)), 8000]
        and len(out.take(5)) == 5
        and out.limit(7).count() == 7
        and out.join(rows, "id").count() == 8000
        and summarize(second) == summarize(rows)
        and summarize(spark.read.parquet(f"{folder}/after")) == summarize(rows)
        and len(out.orderBy(F.desc("id")).head(3)) == 3
        and len(out.toPandas()) == 8000
    }


def slow_reader():
    def work(batches):
        index = TaskContext.get().partitionId()
        for batch in batches:
            time.sleep(batch.num_rows * (0.002 if index == 0 else 0.0001))
            yield pa.record_batch({"id": batch.column(0), "reader": pa.array([index] * batch.num_rows, pa.int32())})

    rows = spark.range(0, 40_000, 1, 4)
    out = penstock.rebalance(rows, 4, adaptive=True, max_traverse_size=2).map_in_arrow(work, WITH_READER)
    counts = {row["reader"]: row["count"] for row in out.groupBy("reader").count().collect()}
    return {"same": sum(counts.values()) == 40_000, "slow": counts[0], "fast": min(counts[i] for i in (1, 2, 3))}


def rests():
    """Pause a consumer for ten seconds; its queue stays within its bound, and the others continue."""

    def work(batches):
        rested = TaskContext.get().partitionId() > 0
        for batch in batches:
            if not rested:
                time.sleep(10)
                rested = True
            yield batch.select(["id"])

    rows = spark.range(0, 600_000, 1, 4).withColumn("text", F.repeat(F.lit("x"), 1000))
    env = Environment(spark, config=OFF, progress=False)
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(work, "id long")
    (totals,) = env.collect(out.agg(F.count("*"), F.sum("id"), F.countDistinct("id")))
    figures = [d.as_dict()["figures"] for d in env.last_job.decisions if d.kind.value == "rebalance"]
    largest = max(consumer["largest_queue"] for consumer in figures)
    return {
        "same": list(map(int, totals)) == summarize(rows) and 0 < largest <= MAX_QUEUED_BYTES,
        "largest": largest,
        "rows": [consumer["rows"] for consumer in figures],
    }


def job():
    """Exchange rows adaptively by the options of a job, and return its decisions."""
    rows = spark.range(0, 20_000, 1, 4)
    rows.write.parquet(f"{folder}/rows")
    files = spark.read.parquet(f"{folder}/rows")
    results = {"same": True}
    env = Environment(spark, config=ON, progress=False)
    for source in (rows, files):
        out = penstock.rebalance(source).map_in_arrow(with_reader, WITH_READER)
        results["same"] &= len(env.collect(out.limit(9))) == 9
        env.write(out, FileSink(f"{folder}/job", mode="overwrite"))
        last = env.execute()
        results["same"] &= summarize(spark.read.parquet(f"{folder}/job")) == summarize(rows)
    results["same"] &= env.count(out.union(out)) == 40_000
    results["edges"] = [str(edge.partitioner) for edge in last.graphs.manager.graph.edges]
    results["decisions"] = [d.as_dict() for d in last.decisions if d.kind.value == "rebalance"]
    return results


def many_splits():
    """Read files with more splits than slots; the job reads them with fewer tasks, and without a shuffle."""
    rows = spark.range(0, 300_000, 1, 8)
    rows.write.parquet(f"{folder}/splits")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "32k")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    files = spark.read.parquet(f"{folder}/splits").filter("id >= 0")
    results = {"splits": files.rdd.getNumPartitions()}
    env = Environment(spark, config=OFF, progress=False)
    out = penstock.rebalance(files, adaptive=True).map_in_arrow(with_reader, WITH_READER)
    results["readers"] = len({row.reader for row in env.collect(out)})
    results["vertices"] = [vertex.tasks for vertex in env.last_job.vertices]
    totals = env.collect(out.agg(F.count("*"), F.sum("id"), F.countDistinct("id")))[0]
    results["decided rows"] = sum(
        d.as_dict()["figures"]["rows"] for d in env.last_job.decisions if d.kind.value == "rebalance"
    )
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    spark.conf.unset("spark.sql.files.openCostInBytes")
    return results | {"same": list(map(int, totals)) == summarize(rows)}


def behind_an_aggregate():
    """Read the output of an aggregate with as many tasks as slots, and without another shuffle."""
    rows = spark.range(0, 50_000, 1, 6).groupBy((F.col("id") % 20_000).alias("id")).agg(F.count("*").alias("n"))
    env = Environment(spark, config=OFF, progress=False)
    results = {"same": True, "vertices": []}
    for exchanged in (penstock.rebalance(rows, adaptive=True), penstock.rescale(rows, 3, adaptive=True)):
        collected = env.collect(exchanged.map_in_arrow(lambda batches: batches, "id long, n long"))
        results["same"] &= sorted(map(tuple, collected)) == sorted(map(tuple, rows.collect()))
        results["vertices"].append(len(env.last_job.vertices))
    return results


def compared_consumers():
    """Return how many consumers the running writers compare, without and with the option, and with an argument."""

    def compare(batches):
        running_task = batches.gi_frame.f_locals["self"]  # it reads these batches, and writes in another thread
        compared = running_task._selector._window if running_task._targets else 0  # 0: it has no rows to write
        rows = sum(batch.num_rows for batch in batches)
        yield pa.record_batch({"id": pa.array([rows], pa.int64()), "reader": pa.array([compared], pa.int32())})

    results = {"same": True}
    option = {"taskmanager.network.adaptive-partitioner.max-traverse-size": 3}
    for name, options, argument in (("default", {}, None), ("option", option, None), ("argument", option, 2)):
        env = Environment(spark, config=ON | options, progress=False)
        exchanged = penstock.rebalance(spark.range(0, 1000, 1, 2), 5, max_traverse_size=argument)
        rows = env.collect(exchanged.map_in_arrow(compare, WITH_READER))
        results["same"] &= sum(row.id for row in rows) == 1000
        results[name] = sorted({row.reader for row in rows} - {0})
    return results


def crash(how, path):
    """Return a function that fails once, in the task that gets the row 777."""

    def crashing(batches):
        for batch in batches:
            if pa.compute.any(pa.compute.equal(batch.column(0), 777)).as_py() and not os.path.exists(path):
                Path(path).touch()
                if how == "exit":
                    os._exit(9)
                if how == "executor":
                    os.kill(_executor(), 9)
                raise ValueError("the first time is always hard")
            yield pa.record_batch({"id": batch.column(0), "reader": pa.array([0] * batch.num_rows, pa.int32())})

    return crashing


def _executor():
    """Return the process id of the executor's JVM, the parent of the Python daemon."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def faults(how):
    """Fail once in two queries and a job; while a killed executor is replaced, Spark refuses a query but no job."""
    rows = spark.range(0, 20_000, 1, 4)
    marker = f"{folder}/{how}"
    wait_for_executors()
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(crash(how, marker + "1"), WITH_READER)
    results = {"same": summarize(out) == summarize(rows)}
    wait_for_executors()
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(crash(how, marker + "2"), WITH_READER)
    results["same"] &= len({row["id"] for row in out.collect()}) == 20_000
    env = Environment(spark, config=OFF, progress=False)
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(crash(how, marker + "3"), WITH_READER)
    env.write(out, FileSink(f"{marker}-out"))
    env.execute()
    results["same"] &= summarize(spark.read.parquet(f"{marker}-out")) == summarize(rows)
    results["crashes"] = sum(os.path.exists(f"{marker}{i}") for i in (1, 2, 3))
    return results


def ends_well():
    """End tasks shortly after another task was killed; Spark accepts the output of some of them."""
    rows = spark.range(0, 20_000, 1, 4)
    parts = []

    def function(marker, delays):
        def work(batches):
            dies = False
            for batch in batches:
                dies |= pa.compute.any(pa.compute.equal(batch.column(0), 777)).as_py()
                yield pa.record_batch({"id": batch.column(0), "reader": pa.array([0] * batch.num_rows, pa.int32())})
            if os.path.exists(marker):
                return
            if dies:
                time.sleep(0.3)  # by then the other tasks have read all rows
                Path(marker).touch()
                os._exit(9)
            while not os.path.exists(marker):
                time.sleep(0.0005)
            time.sleep(delays[TaskContext.get().partitionId()])

        return work

    for i in range(60):  # in one of fifteen rounds Spark accepts the output of some tasks
        delays = [random.uniform(0, 0.02) for _ in range(4)]
        work = function(f"{folder}/well{i}", delays)
        out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(work, WITH_READER)
        parts.append(summarize(out) == summarize(rows))
    return {"same": all(parts), "wrong": parts.count(False)}


def lost_block():
    """Kill an executor after the exchange, when later tasks have read some of its output."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    rows = spark.range(0, 40_000, 1, 4)

    def behind(marker):
        def work(batches):
            yield from batches
            if TaskContext.get().partitionId() == 3 and not os.path.exists(marker):
                time.sleep(4)  # by then the other tasks have ended
                Path(marker).touch()
                os.kill(_executor(), 9)

        return work

    def summarize_rows(collected):
        return [len(collected), sum(row.id for row in collected), len({row.id for row in collected})]

    results = {}
    env = Environment(spark, config=OFF, progress=False)
    actions = {
        "shuffled": summarize,
        "collected": lambda df: summarize_rows(df.collect()),
        "job": lambda df: summarize_rows(env.collect(df)),
    }
    for name, count in actions.items():
        wait_for_executors()
        out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(with_reader, WITH_READER)
        try:
            results[name] = count(out.mapInArrow(behind(f"{folder}/{name}"), WITH_READER))
        except Exception as error:
            results[name] = str(error)[:600]
    spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    # A query of plain Spark may fail, but has no wrong rows. Spark does not repeat its last stage, and runs no further
    # stage above an exchange (SPARK-24819) until another executor has started. A job repeats its last stage.
    refusals = {"shuffled": "[SPARK-24819]", "collected": "cannot rollback the ResultStage", "job": "never refused"}
    right = all(refusals[name] in str(result) or result == summarize(rows) for name, result in results.items())
    return results | {"same": right and all(os.path.exists(f"{folder}/{name}") for name in actions)}


def always_wrong():
    def wrong(batches):
        for _ in batches:
            raise ValueError("no row is good enough")
        yield

    env = Environment(spark, config=OFF, progress=False)
    rows = spark.range(0, 1000, 1, 4)
    env.write(penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(wrong, "id long"), FileSink(f"{folder}/wrong"))
    try:
        env.execute()
    except Exception as error:
        message = str(error)
        is_complete = "no row is good enough" in message and f"made at:  {__file__}:" in message
        return {"same": is_complete and not os.path.exists(f"{folder}/wrong"), "message": message[:500]}
    return {"same": False}


def stream():
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).option("numPartitions", 2).load()
    out = penstock.rebalance(rows.selectExpr("value as id"), 3, adaptive=True).map_in_arrow(with_reader, WITH_READER)
    query = out.writeStream.format("memory").queryName("stream").start()
    deadline = time.time() + 90
    while time.time() < deadline and spark.table("stream").count() < 2000:
        time.sleep(0.5)
    query.stop()
    count, _, distinct = summarize(spark.table("stream"))
    return {"same": count == distinct >= 2000, "count": count}


def driver_out_of_reach():
    """Exchange rows between tasks that cannot reach the driver, through Spark's barrier."""
    rows = spark.range(0, 10_000, 1, 4)
    original = operator.rendezvous_of

    def unreachable(spark):
        rendezvous = original(spark)
        return dataclasses.replace(rendezvous, server=dataclasses.replace(rendezvous.server, port=1))

    operator.rendezvous_of = unreachable
    try:
        return check_exchange(rows, penstock.rebalance(rows, 4, adaptive=True))
    finally:
        operator.rendezvous_of = original


CASES = dict(shapes()) | {
    "values": values,
    "pandas": pandas,
    "early end": early,
    "more and fewer": more_and_fewer,
    "after": after,
    "slow reader": slow_reader,
    "job": job,
    "exception": lambda: faults("exception"),
    "exit": lambda: faults("exit"),
    "executor": lambda: faults("executor"),
    "always wrong": always_wrong,
    "stream": stream,
    "lost block": lost_block,
    "rests": rests,
    "many splits": many_splits,
    "behind an aggregate": behind_an_aggregate,
    "compared consumers": compared_consumers,
    "driver out of reach": driver_out_of_reach,
    "ends well": ends_well,
}


def wait_for_executors():
    """Wait until killed executors are replaced."""
    deadline = time.time() + 60
    profile = spark.sparkContext._jsc.sc().resourceProfileManager().defaultResourceProfile()
    while spark.sparkContext._jsc.sc().maxNumConcurrentTasks(profile) < 4 and time.time() < deadline:
        time.sleep(0.5)


results = {}
for name in names or [name for name in CASES if name not in {"executor", "lost block"}]:
    wait_for_executors()
    started = time.time()
    try:
        results[name] = CASES[name]()
    except Exception as error:
        results[name] = {"same": False, "error": f"{type(error).__name__}: {error}"[:1500]}
    results[name]["seconds"] = round(time.time() - started, 1)
print("RESULT", json.dumps(results, default=str), flush=True)
spark.stop()
