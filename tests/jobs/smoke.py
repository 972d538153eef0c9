"""Checks pipelines on the PySpark that is on the path against plain Spark, and their expected decisions.

Run by tools/spark_versions.py. Argument: an empty folder.
"""

import os
import shutil
import sys
import time
import traceback
from pathlib import Path

folder = Path(sys.argv[1])
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

import pandas as pd
import pyspark
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

import penstock
import penstock.state
from penstock import Environment
from penstock.connectors import FileSink
from penstock.history.event_log import LocalFolder
from penstock.history.logs import History
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from tests.state.queries import BY_NAME, run, write_input
from tests.support.equality import assert_same_rows
from tests.support.native import compute_all_natively

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.warehouse.dir": str(folder / "warehouse"),
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
compute_all_natively(pytest.MonkeyPatch())
builder = SparkSession.builder.master("local[2]").appName("smoke")
for key, value in QUIET.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

CONFIG = {
    "execution.batch.adaptive.whole-query-threshold": 0,
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "64 kb",
    "execution.verify": True,
}
BROADCAST = "table.optimizer.adaptive-broadcast-join.strategy"
SHUFFLED = {
    BROADCAST: "NONE",
    "table.optimizer.join.broadcast-threshold": "-1",
    "table.optimizer.dynamic-filtering.enabled": False,
}
FILTERED = {BROADCAST: "RUNTIME_ONLY", "table.optimizer.join.broadcast-threshold": "-1"}
SPLIT = SHUFFLED | {"table.optimizer.skewed-join-optimization.skewed-threshold": "100 kb"}
EXCHANGE = {"taskmanager.network.adaptive-partitioner.enabled": True}

ROWS = 60_000
spark.range(0, ROWS, 1, 4).selectExpr(
    "id",
    "if(id % 97 = 0, null, pmod(hash(id), 500)) as k",
    "if(id % 10 < 7, 7, id % 500) as hot",
    "id % 20 as day",
    "id * 3 as v",
    "cast(id as decimal(12, 2)) / 8 as d",
    "uuid() as pad",
).write.parquet(str(folder / "facts"))
spark.range(0, 500, 1, 2).selectExpr("id as j", "id % 10 as a", "concat('name ', id) as n").write.parquet(
    str(folder / "dim")
)
facts, dim = (spark.read.parquet(str(folder / name)) for name in ("facts", "dim"))
facts.createOrReplaceTempView("facts")
dim.createOrReplaceTempView("dim")
exchanged = facts.join(dim.hint("shuffle_hash"), F.col("k") == F.col("j"))
joined = facts.join(dim.where("a < 1"), F.col("k") == F.col("j"))
spread = facts.join(dim, F.col("hot") == F.col("j"))


def center(group: pd.DataFrame) -> pd.DataFrame:
    return group.assign(v=group.v - group.v.min())


@F.udf("long")
def increment(value):
    return None if value is None else value + 1


def duplicate(batches):
    for batch in batches:
        yield from (batch, batch)


RANK = Window.partitionBy("day").orderBy(F.desc("v"), "id")
# Name, DataFrame, further options, and the kind and words that one of its decisions must have.
PIPELINES = [
    (
        "a join that turns out small",
        joined.groupBy("n").agg(F.sum("v"), F.sum("d"), F.count("*")),
        {BROADCAST: "RUNTIME_ONLY"},
        "broadcast right",
    ),
    ("a join with a dynamic filter", joined.groupBy("n").agg(F.max("pad"), F.sum("v")), FILTERED, "dynamic filter"),
    (
        "a join whose hot key is split",
        spread.groupBy(F.expr("v % 10")).agg(F.count("*"), F.sum("v"), F.max("pad")),
        SPLIT,
        "skew split",
    ),
    (
        "an outer join, shuffled",
        facts.join(dim, F.col("k") == F.col("j"), "full").groupBy("a").agg(F.count("k"), F.sum("d")),
        SHUFFLED,
        "parallelism",
    ),
    (
        "aggregates",
        facts.groupBy("day").agg(F.countDistinct("k"), F.sort_array(F.collect_set("hot")), F.avg("d")),
        {},
        "parallelism",
    ),
    (
        "grouping sets",
        spark.sql("select a, n, sum(v), count(*) from facts join dim on k = j group by rollup(a, n)"),
        {},
        "parallelism",
    ),
    (
        "a window",
        facts.withColumn("r", F.rank().over(RANK)).where("r <= 3").select("day", "r", "id", "v"),
        {},
        "parallelism",
    ),
    (
        "a join and an aggregate in DuckDB",
        joined.groupBy("n").agg(F.sum("d"), F.count("*")),
        {"execution.native": True},
        "native DuckDB",
    ),
    (
        "an aggregate over a join of exchanged columns, in DuckDB",
        exchanged.groupBy("k").agg(F.sum("d"), F.count("*")).groupBy("count(1)").count(),
        {"execution.native": True},
        "native DuckDB",
    ),
    ("a sort and a limit", facts.orderBy(F.desc("v")).limit(100).select("id", "v"), {}, "parallelism"),
    (
        "a union and a set operation",
        facts.select("k", "day")
        .union(facts.select("hot", "day"))
        .distinct()
        .exceptAll(facts.select("k", "day").where("day < 5").distinct()),
        {},
        "parallelism",
    ),
    (
        "a subquery",
        spark.sql(
            "select count(*), sum(v) from facts where v > (select avg(v) from facts) and k in (select j from dim where a = 3)"
        ),
        {},
        "parallelism",
    ),
    (
        "Python functions",
        facts.select(increment("k").alias("k"), "v")
        .where("k is not null")
        .groupBy("k")
        .applyInPandas(center, "k long, v long")
        .groupBy("k")
        .agg(F.sum("v")),
        {},
        "parallelism",
    ),
    (
        "a rebalance",
        penstock.rebalance(facts.select("id"), 3, adaptive=False).map_in_arrow(duplicate, "id long"),
        {},
        "parallelism",
    ),
    ("a rescale", penstock.rescale(facts.select("id"), 2).map_in_arrow(duplicate, "id long"), {}, "parallelism"),
    (
        "an adaptive exchange",
        penstock.rebalance(facts.select("id").repartition(2), 2).map_in_arrow(duplicate, "id long"),
        EXCHANGE,
        "rebalance",
    ),
]


def decisions(job) -> list[str]:
    return [f"{decision.kind.value} {decision.chosen}" for decision in job.decisions]


def check_pipeline(df, options, words):
    check_query(Environment(spark, config=CONFIG | options, progress=False), df, words)


def check_query(env, df, words):
    """Compare the rows with plain Spark, and check that a decision contains all words."""
    assert_same_rows(env.collect(df), df.collect())
    texts = decisions(env.last_job)
    assert any(all(word in text for word in words.split()) for text in texts), f"no decision {words!r} among {texts}"


def several_files():
    """Write two sinks in a job, and append in a second run."""
    env = Environment(spark, config=CONFIG, progress=False)
    sums = joined.groupBy("n").agg(F.sum("v").alias("v"))
    for _ in range(2):
        env.write(sums, FileSink(str(folder / "sums"), mode="append"))
        env.write(facts.select("id", "v", "day"), FileSink(str(folder / "days"), mode="append", partition_by=["day"]))
        env.execute("files")
    assert_same_rows(spark.read.parquet(str(folder / "sums")).collect(), sums.union(sums).collect())
    days = facts.select("id", "v", F.col("day").cast("int"))
    assert_same_rows(spark.read.parquet(str(folder / "days")).collect(), days.union(days).collect())


def explained():
    text = str(Environment(spark, config=CONFIG, progress=False).explain(joined.groupBy("n").count()))
    assert " join " in text, text
    assert "facts" in text, text


def default_options():
    """With default options, Spark runs small queries."""
    env = Environment(spark, progress=False)
    df = spread.groupBy("n").agg(F.sum("v"))
    assert_same_rows(env.collect(df), df.collect())
    assert env.to_pandas(df).shape[0] == env.count(df) == df.count()


def single_task():
    env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 1}, progress=False)
    df = spark.sql(
        "select n, sum(d), avg(d), count(distinct day), rank() over (order by sum(v)) from facts join dim on k = j "
        "where v > (select max(v) - 100000 from facts) and hot in (select j from dim where a > 2) group by n"
    )
    check_query(env, df, "native DuckDB, in one task")


def event_log():
    """The event log has the state of the job and its tasks."""
    env = Environment(spark, config=CONFIG | {"jobmanager.archive.fs.dir": str(folder / "logs")}, progress=False)
    env.count(joined.groupBy("n").count())
    record = History(LocalFolder(folder / "logs")).record(env.last_job.id)
    assert record.state == "FINISHED"
    assert {task.state for tasks in record.tasks.values() for task in tasks} == {"SUCCESS"}


def served():
    """Delegate queries of the session: an action, a cached table, a write."""

    def grouped():
        return joined.groupBy("n").agg(F.sum("v").alias("v"))

    plain = grouped().collect()
    before = len(RECENT)
    with penstock.enabled(spark, config=CONFIG):
        assert_same_rows(grouped().collect(), plain)
        assert len(RECENT) == before + 1
        assert grouped().cache().count() == len(plain)
        grouped().unpersist()
        grouped().orderBy("n").write.mode("overwrite").parquet(str(folder / "served"))
        assert len(grouped().limit(2).collect()) == min(2, len(plain))
    assert_same_rows(spark.read.parquet(str(folder / "served")).collect(), plain)
    assert len(RECENT) >= before + 4


def failing_in_python():
    """Report the error of a Python function without a fallback to Spark."""
    before = len(RECENT)
    with penstock.enabled(spark, config=CONFIG):
        try:
            joined.groupBy("n").agg(F.sum(F.udf(lambda v: 1 // 0, "long")("v"))).collect()
        except PythonException as error:
            assert "ZeroDivisionError" in str(error), error
        else:
            raise AssertionError("no error")
    (job,) = list(RECENT)[before:]
    assert RUN_BY_SPARK not in {decision.chosen for decision in job.decisions}, decisions(job)


def rescaled(name):
    """A rescaled streaming query continues with the same rows as a copy that was not rescaled."""
    location = folder / name.replace(" ", "-")
    (location / "in").mkdir(parents=True)
    write_input(spark, location / "in", 0)
    run(spark, BY_NAME[name], location / "in", location / "rescaled")
    shutil.copytree(location / "rescaled", location / "twin")
    report = penstock.state.rescale(str(location / "rescaled"), 6, spark=spark)
    assert [store.rows for store in report.stores] == [200]
    write_input(spark, location / "in", 1)
    later = run(spark, BY_NAME[name], location / "in", location / "twin")
    assert later
    assert run(spark, BY_NAME[name], location / "in", location / "rescaled") == later


CASES = {name: lambda arguments=arguments: check_pipeline(*arguments) for name, *arguments in PIPELINES} | {
    "files of two sinks": several_files,
    "explain": explained,
    "default options": default_options,
    "a query in a single DuckDB task": single_task,
    "an event log": event_log,
    "a served session": served,
    "an error of a Python function": failing_in_python,
    "more key groups in RocksDB": lambda: rescaled("counts updated"),
    "more key groups in memory": lambda: rescaled("counts in memory"),
}
failed = 0
started = time.time()
for name, case in CASES.items():
    try:
        case()
    except Exception:
        failed += 1
        print(f"Spark {pyspark.__version__}: {name}: FAILED\n{traceback.format_exc()[-4000:]}", flush=True)
print(f"Spark {spark.version}, {len(CASES)} pipelines in {time.time() - started:.0f} s: {', '.join(CASES)}")
print(f"{len(CASES) - failed} passed, {failed} failed", flush=True)
spark.stop()
sys.exit(failed > 0)
