"""Aggregates and windows with one key in 80 % of the rows on eight executors of one core: in pieces, and in one task.

Figures are of the task that read most of an exchange, from the stages that ran: its bytes, and its CPU seconds.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Environment
from provenance import STATE, versions
from skew import stage_list

HERE = Path(__file__).parent
MASTER = "local-cluster[8,1,1024]"
STRATEGY = "table.optimizer.skewed-join-optimization.strategy"
OPTIONS = {
    "table.optimizer.skewed-join-optimization.skewed-threshold": "4 mb",
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "1 mb",
    "execution.batch.adaptive.whole-query-threshold": 0,
}
CASES = {
    "percentile of 20 000 values": "percentile(v, 0.5)",
    "size of a set of 20 000 texts": "size(collect_set(concat('customer ', v)))",
    "percentile of values that all differ": "percentile(id, 0.5)",
    "distinct count": "count(distinct v)",
}
WINDOWS = {
    "rank and running sum": ("rank()", "sum(v)"),
    "dense rank": ("dense_rank()",),
}


def query(hot: DataFrame, name: str) -> DataFrame:
    """Return a case. Of a window, all rows count, but few of them leave the executors."""
    if name in CASES:
        return hot.groupBy("k").agg(F.expr(CASES[name]).alias("x"))
    columns = (f"{one} over (partition by k order by v, id) as c{i}" for i, one in enumerate(WINDOWS[name]))
    windowed = hot.selectExpr("*", *columns)
    return windowed.agg(F.count("*"), F.expr(f"bit_xor(xxhash64({', '.join(windowed.columns)}))"))


def figures(spark: SparkSession, before: int) -> tuple[float, float, float]:
    """Return the MiB that the largest task read from an exchange, the most CPU seconds of one that did, and those of all."""
    store = spark._jsc.sc().statusStore()
    most, slowest, total = 0.0, 0.0, 0.0
    for stage in stage_list(spark):
        if stage.stageId() < before or str(stage.status().toString()) != "COMPLETE":
            continue
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 100_000)
        for metrics in (
            one.get() for one in (tasks.apply(t).taskMetrics() for t in range(tasks.size())) if one.isDefined()
        ):
            read = metrics.shuffleReadMetrics()
            size, seconds = int(read.localBytesRead()) + int(read.remoteBytesRead()), metrics.executorCpuTime() / 1e9
            most, total = max(most, size / 2**20), total + seconds
            slowest = max(slowest, seconds if size else 0.0)
    return most, slowest, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--cases", default=",".join([*CASES, *WINDOWS]), help="names separated by commas")
    arguments = parser.parse_args()
    spark = (
        SparkSession.builder.master(MASTER)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.executor.memory", "1g")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        columns = "if(id % 10 < 8, 7, id % 20000) as k", "pmod(hash(id), 20000) as v", "id"
        spark.range(0, arguments.rows, 1, 64).selectExpr(*columns).write.parquet(folder, mode="overwrite")
        hot = spark.read.parquet(folder)
        for name in arguments.cases.split(","):
            df = query(hot, name)
            rows: dict[str, list[str]] = {}
            shown: list[float] = []
            for way in ("Spark", "NONE", "AUTO", "NONE", "AUTO"):
                before, start = len(stage_list(spark)), time.perf_counter()
                if way == "Spark":
                    rows[way] = sorted(map(str, df.collect()))
                    continue
                env = Environment(spark, config={**OPTIONS, STRATEGY: way}, progress=False)
                rows[way] = sorted(map(str, env.collect(df)))
                seconds = time.perf_counter() - start
                most, slowest, total = figures(spark, before)
                job = env.last_job
                assert job is not None
                told = [f"{one.chosen} {dict(one.outcome)}" for one in job.decisions if one.kind.value == "skew"]
                print(
                    name, way, f"{most:.1f} MiB {slowest:.2f} s, {total:.1f} s CPU, {seconds:.1f} s", told, flush=True
                )
                shown = [*shown, most, slowest, total][-6:]
            if not rows["Spark"] == rows["NONE"] == rows["AUTO"]:
                raise SystemExit(f"{name}: other rows")
            one, other = shown[:3], shown[3:]
            lines.append(
                f"| {name} | {one[0]:.1f} MiB, {one[1]:.2f} s | {other[0]:.1f} MiB, {other[1]:.2f} s "
                f"| {one[2]:.1f} s | {other[2]:.1f} s |"
            )
    write(lines, arguments.rows)


def write(lines: list[str], rows: int) -> None:
    about = (
        f"{rows:,} rows, one key in 80 % of them, {STATE}: the second of two runs each. "
        f"{versions()}, {MASTER} on two cores, so only bytes and CPU seconds count. "
        f"Rows are equal to plain Spark's. Options: {OPTIONS}."
    )
    head = [
        about,
        "",
        "| case | largest task, NONE | largest task, AUTO | CPU of all tasks, NONE | CPU of all tasks, AUTO |",
        "|---|--:|--:|--:|--:|",
    ]
    (HERE / "results" / "skew-aggregates.md").write_text("\n".join([*head, *lines]) + "\n")
    print("\n".join([*head, *lines]))


if __name__ == "__main__":
    main()
