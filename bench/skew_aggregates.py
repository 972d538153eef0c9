"""Compare aggregates and windows with a key in 80 % of the rows, merged in chunks and in a single task.

There are eight executors with one core each. Bytes and CPU seconds are those of the largest task, as Spark measures them.
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
from provenance import DATE_AND_COMMIT, versions
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
    """Return the query of a case; a window is reduced to a count and a checksum on the executors."""
    if name in CASES:
        return hot.groupBy("k").agg(F.expr(CASES[name]).alias("x"))
    columns = (f"{function} over (partition by k order by v, id) as c{i}" for i, function in enumerate(WINDOWS[name]))
    windowed = hot.selectExpr("*", *columns)
    return windowed.agg(F.count("*"), F.expr(f"bit_xor(xxhash64({', '.join(windowed.columns)}))"))


def task_metrics(spark: SparkSession, first_stage: int) -> tuple[float, float, float]:
    """Return the maximum MiB that a task read from an exchange, the maximum CPU seconds of such a task, and the CPU seconds of all tasks."""
    store = spark._jsc.sc().statusStore()
    max_mib, max_cpu, total = 0.0, 0.0, 0.0
    for stage in stage_list(spark):
        if stage.stageId() < first_stage or str(stage.status().toString()) != "COMPLETE":
            continue
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 100_000)
        options = (tasks.apply(t).taskMetrics() for t in range(tasks.size()))
        for metrics in (option.get() for option in options if option.isDefined()):
            read = metrics.shuffleReadMetrics()
            size, seconds = int(read.localBytesRead()) + int(read.remoteBytesRead()), metrics.executorCpuTime() / 1e9
            max_mib, total = max(max_mib, size / 2**20), total + seconds
            max_cpu = max(max_cpu, seconds if size else 0.0)
    return max_mib, max_cpu, total


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
            measurements: list[float] = []
            for variant in ("Spark", "NONE", "AUTO", "NONE", "AUTO"):
                first_stage, start = len(stage_list(spark)), time.perf_counter()
                if variant == "Spark":
                    rows[variant] = sorted(map(str, df.collect()))
                    continue
                env = Environment(spark, config={**OPTIONS, STRATEGY: variant}, progress=False)
                rows[variant] = sorted(map(str, env.collect(df)))
                seconds = time.perf_counter() - start
                max_mib, max_cpu, total = task_metrics(spark, first_stage)
                job = env.last_job
                assert job is not None
                skew = [
                    f"{decision.chosen} {dict(decision.outcome)}"
                    for decision in job.decisions
                    if decision.kind.value == "skew"
                ]
                summary = f"{max_mib:.1f} MiB {max_cpu:.2f} s, {total:.1f} s CPU, {seconds:.1f} s"
                print(name, variant, summary, skew, flush=True)
                measurements = [*measurements, max_mib, max_cpu, total][-6:]
            if not rows["Spark"] == rows["NONE"] == rows["AUTO"]:
                raise SystemExit(f"{name}: the rows of Penstock and Spark differ")
            off, on = measurements[:3], measurements[3:]
            lines.append(
                f"| {name} | {off[0]:.1f} MiB, {off[1]:.2f} s | {on[0]:.1f} MiB, {on[1]:.2f} s "
                f"| {off[2]:.1f} s | {on[2]:.1f} s |"
            )
    write(lines, arguments.rows)


def write(lines: list[str], rows: int) -> None:
    about = (
        f"{rows:,} rows, a key in 80 % of them, {DATE_AND_COMMIT}: the second of two runs each. "
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
