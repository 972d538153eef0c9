"""Adaptive exchanges on a session with many slots; prints what came out of each case, as JSON.

Arguments: the master, an empty folder, and the names of cases, all if there are none.
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

master, folder, *wanted = sys.argv[1:]
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
from penstock.rebalance.task import READER_BYTES

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


def where(batches):
    """Each row with the consumer that got it."""
    index = TaskContext.get().partitionId()
    for batch in batches:
        yield pa.record_batch({"id": batch.column("id"), "reader": pa.array([index] * batch.num_rows, pa.int32())})


WHERE = "id long, reader int"


def facts(df):
    row = df.agg(F.count("*"), F.sum("id"), F.countDistinct("id")).first()
    return [None if one is None else int(one) for one in row]


def exact(rows, made, function=where, schema=WHERE):
    """Whether an exchange gives each row once, and how many consumers had rows."""
    out = made.map_in_arrow(function, schema)
    readers = out.select("reader").distinct().count()
    return {"same": facts(out) == facts(rows), "readers": readers}


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
            lambda rows=rows, readers=readers: exact(rows, penstock.rebalance(rows, readers, adaptive=True)),
        )
    for writers, readers in ((2, 6), (2, 4), (6, 2), (3, 3)):
        rows = spark.range(0, 12_000, 1, writers)
        yield (
            f"rescale {writers} to {readers}",
            lambda rows=rows, readers=readers: exact(rows, penstock.rescale(rows, readers, adaptive=True)),
        )


def values():
    """Rows of all kinds, also large ones, come out as they went in."""
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
    return {"same": facts(odd) == facts(rows.filter("id % 2 = 1")) and many.distinct().count() <= 9000}


def after():
    """What Spark refuses of tasks that must run together works behind the operator."""
    rows = spark.range(0, 8000, 1, 4)
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(where, WHERE)
    again = penstock.rebalance(out, 2, adaptive=True).map_in_arrow(where, WHERE)
    out.write.parquet(f"{folder}/after")
    return {
        "same": facts(out.union(out).coalesce(2)) == [16_000, 2 * sum(range(8000)), 8000]
        and len(out.take(5)) == 5
        and out.limit(7).count() == 7
        and out.join(rows, "id").count() == 8000
        and facts(again) == facts(rows)
        and facts(spark.read.parquet(f"{folder}/after")) == facts(rows)
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
    out = penstock.rebalance(rows, 4, adaptive=True, max_traverse_size=2).map_in_arrow(work, WHERE)
    counts = {row["reader"]: row["count"] for row in out.groupBy("reader").count().collect()}
    return {"same": sum(counts.values()) == 40_000, "slow": counts[0], "fast": min(counts[i] for i in (1, 2, 3))}


def rests():
    """A consumer that stops for ten seconds: what waits for it stays in its bound, and the others go on."""

    def work(batches):
        rested = TaskContext.get().partitionId() > 0
        for batch in batches:
            if not rested:
                time.sleep(10)
                rested = True
            yield batch.select(["id"])

    rows = spark.range(0, 600_000, 1, 4).withColumn("text", F.repeat(F.lit("x"), 1000))
    env = Environment(spark, config=OFF, progress=False)
    made = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(work, "id long")
    found = [
        None if one is None else int(one)
        for one in env.collect(made.agg(F.count("*"), F.sum("id"), F.countDistinct("id")))[0]
    ]
    told = [d.as_dict()["figures"] for d in env.last_job.decisions if d.kind.value == "rebalance"]
    largest = max(one["largest_queue"] for one in told)
    return {
        "same": found == facts(rows) and 0 < largest <= READER_BYTES,
        "largest": largest,
        "rows": [one["rows"] for one in told],
    }


def job():
    """By the options of a job; what each consumer took is told."""
    rows = spark.range(0, 20_000, 1, 4)
    rows.write.parquet(f"{folder}/rows")
    files = spark.read.parquet(f"{folder}/rows")
    said = {"same": True}
    env = Environment(spark, config=ON, progress=False)
    for source in (rows, files):
        out = penstock.rebalance(source).map_in_arrow(where, WHERE)
        said["same"] &= len(env.collect(out.limit(9))) == 9
        env.write(out, FileSink(f"{folder}/job", mode="overwrite"))
        last = env.execute()
        said["same"] &= facts(spark.read.parquet(f"{folder}/job")) == facts(rows)
    said["same"] &= env.count(out.union(out)) == 40_000
    said["edges"] = [str(edge.partitioner) for edge in last.graphs.manager.graph.edges]
    said["told"] = [d.as_dict() for d in last.decisions if d.kind.value == "rebalance"]
    return said


def many_splits():
    """Files that Spark would cut into more tasks than can run at once: the job cuts them into fewer, and shuffles nothing."""
    rows = spark.range(0, 300_000, 1, 8)
    rows.write.parquet(f"{folder}/splits")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "32k")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    files = spark.read.parquet(f"{folder}/splits").filter("id >= 0")
    said = {"splits": files.rdd.getNumPartitions()}
    env = Environment(spark, config=OFF, progress=False)
    out = penstock.rebalance(files, adaptive=True).map_in_arrow(where, WHERE)
    said["readers"] = len({row.reader for row in env.collect(out)})
    said["vertices"] = [vertex.tasks for vertex in env.last_job.vertices]
    found = env.collect(out.agg(F.count("*"), F.sum("id"), F.countDistinct("id")))[0]
    said["told"] = sum(d.as_dict()["figures"]["rows"] for d in env.last_job.decisions if d.kind.value == "rebalance")
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    spark.conf.unset("spark.sql.files.openCostInBytes")
    return said | {"same": [int(one) for one in found] == facts(rows)}


def behind_an_aggregate():
    """What an aggregate gives is cut into as many tasks as can run, and not shuffled once more."""
    rows = spark.range(0, 50_000, 1, 6).groupBy((F.col("id") % 20_000).alias("id")).agg(F.count("*").alias("n"))
    env = Environment(spark, config=OFF, progress=False)
    said = {"same": True, "vertices": []}
    for made in (penstock.rebalance(rows, adaptive=True), penstock.rescale(rows, 3, adaptive=True)):
        found = env.collect(made.map_in_arrow(lambda batches: batches, "id long, n long"))
        said["same"] &= sorted(map(tuple, found)) == sorted(map(tuple, rows.collect()))
        said["vertices"].append(len(env.last_job.vertices))
    return said


def crash(how, path):
    """A function that fails once, in the task that gets a certain row."""

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
    """The process of the executor's JVM: the parent of the Python daemon."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def faults(how):
    rows = spark.range(0, 20_000, 1, 4)
    marker = f"{folder}/{how}"
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(crash(how, marker + "1"), WHERE)
    said = {"same": facts(out) == facts(rows)}
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(crash(how, marker + "2"), WHERE)
    said["same"] &= len({row["id"] for row in out.collect()}) == 20_000
    env = Environment(spark, config=OFF, progress=False)
    out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(crash(how, marker + "3"), WHERE)
    env.write(out, FileSink(f"{marker}-out"))
    env.execute()
    said["same"] &= facts(spark.read.parquet(f"{marker}-out")) == facts(rows)
    said["crashes"] = sum(os.path.exists(f"{marker}{i}") for i in (1, 2, 3))
    return said


def ends_well():
    """Tasks that end well in the moments after another one was killed: Spark keeps the rows of some of them."""
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
                time.sleep(0.3)  # the others have read all by now
                Path(marker).touch()
                os._exit(9)
            while not os.path.exists(marker):
                time.sleep(0.0005)
            time.sleep(delays[TaskContext.get().partitionId()])

        return work

    for i in range(60):  # Spark kept the rows of some tasks in one round of fifteen
        delays = [random.uniform(0, 0.02) for _ in range(4)]
        work = function(f"{folder}/well{i}", delays)
        out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(work, WHERE)
        parts.append(facts(out) == facts(rows))
    return {"same": all(parts), "wrong": parts.count(False)}


def lost_block():
    """An executor that is killed once the exchange is over, when tasks behind it have read some of what it wrote."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    rows = spark.range(0, 40_000, 1, 4)

    def behind(marker):
        def work(batches):
            yield from batches
            if TaskContext.get().partitionId() == 3 and not os.path.exists(marker):
                time.sleep(4)  # the others are done by now
                Path(marker).touch()
                os.kill(_executor(), 9)

        return work

    def of_rows(found):
        return [len(found), sum(row.id for row in found), len({row.id for row in found})]

    said = {}
    env = Environment(spark, config=OFF, progress=False)
    ways = {
        "shuffled": facts,
        "collected": lambda df: of_rows(df.collect()),
        "job": lambda df: of_rows(env.collect(df)),
    }
    for name, count in ways.items():
        wait_for_executors()
        out = penstock.rebalance(rows, 4, adaptive=True).map_in_arrow(where, WHERE)
        try:
            said[name] = count(out.mapInArrow(behind(f"{folder}/{name}"), WHERE))
        except Exception as error:
            said[name] = str(error)[:600]
    spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    # Spark does not repeat the last stage of a query, and says so; a job does.
    refused = "cannot rollback the ResultStage" in str(said["collected"])
    right = said["shuffled"] == said["job"] == facts(rows) and (refused or said["collected"] == facts(rows))
    return said | {"same": right and all(os.path.exists(f"{folder}/{name}") for name in ways)}


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
        said = str(error)
        told = "no row is good enough" in said and f"made at:  {__file__}:" in said
        return {"same": told and not os.path.exists(f"{folder}/wrong"), "said": said[:500]}
    return {"same": False}


def stream():
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).option("numPartitions", 2).load()
    out = penstock.rebalance(rows.selectExpr("value as id"), 3, adaptive=True).map_in_arrow(where, WHERE)
    query = out.writeStream.format("memory").queryName("stream").start()
    deadline = time.time() + 90
    while time.time() < deadline and spark.table("stream").count() < 2000:
        time.sleep(0.5)
    query.stop()
    count, _, distinct = facts(spark.table("stream"))
    return {"same": count == distinct >= 2000, "count": count}


def driver_out_of_reach():
    """Tasks that cannot reach the driver find one another by Spark's barrier."""
    rows = spark.range(0, 10_000, 1, 4)
    real = operator.rendezvous_of
    operator.rendezvous_of = lambda spark: dataclasses.replace(real(spark), port=1)
    try:
        return exact(rows, penstock.rebalance(rows, 4, adaptive=True))
    finally:
        operator.rendezvous_of = real


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
    "driver out of reach": driver_out_of_reach,
    "ends well": ends_well,
}


def wait_for_executors():
    """Until those that were killed are there again."""
    deadline = time.time() + 60
    profile = spark.sparkContext._jsc.sc().resourceProfileManager().defaultResourceProfile()
    while spark.sparkContext._jsc.sc().maxNumConcurrentTasks(profile) < 4 and time.time() < deadline:
        time.sleep(0.5)


said = {}
for name in wanted or [name for name in CASES if name not in {"executor", "lost block"}]:
    wait_for_executors()
    started = time.time()
    try:
        said[name] = CASES[name]()
    except Exception as error:
        said[name] = {"same": False, "error": f"{type(error).__name__}: {error}"[:1500]}
    said[name]["seconds"] = round(time.time() - started, 1)
print("SAID", json.dumps(said, default=str), flush=True)
spark.stop()
