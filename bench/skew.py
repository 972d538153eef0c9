"""Compare joins and distinct counts with a key in 60 % of the rows: Spark with forced skew handling, and Penstock.

Times are medians. Bytes per task come from Spark's stages: with more cores, balanced tasks would save more time.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Environment
from provenance import DATE_AND_COMMIT, versions

HERE = Path(__file__).parent
FORCED = {
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.5",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "32m",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
OPTIONS = {
    "table.optimizer.join.broadcast-threshold": "-1",
    "table.optimizer.skewed-join-optimization.skewed-threshold": "32 mb",
}


def cases(hot: DataFrame, keys: DataFrame) -> dict[str, DataFrame]:
    joined = {how: hot.join(keys, hot.k == keys.j, how) for how in ("inner", "left")}
    queries = {
        f"{how} join": df.groupBy("team").agg(F.count("*").alias("n"), F.sum("v").alias("v"), F.max("pad").alias("pad"))
        for how, df in joined.items()
    }
    queries["distinct count"] = hot.groupBy("k").agg(F.count_distinct("v").alias("n")).agg(F.sum("n").alias("n"))
    spread = hot.repartition("k").groupBy("k")
    queries["distinct count behind a repartition"] = spread.agg(F.count_distinct("v").alias("n")).agg(
        F.sum("n").alias("n")
    )
    return queries


def stage_list(spark: SparkSession) -> list:
    """Return all stages of Spark's status store."""
    no_quantiles = spark.sparkContext._gateway.new_array(spark._jvm.double, 0)
    none = spark._jvm.java.util.ArrayList()
    stages = spark._jsc.sc().statusStore().stageList(none, False, False, no_quantiles, none)
    return [stages.apply(i) for i in range(stages.size())]


def largest_task_bytes(spark: SparkSession, first_stage: int) -> tuple[int, int]:
    """Return the shuffle bytes of the largest and the median task of the stage with the largest task."""
    store = spark._jsc.sc().statusStore()
    worst = (0, 0)
    for stage in stage_list(spark):
        if stage.stageId() < first_stage or str(stage.status().toString()) != "COMPLETE":
            continue
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 100_000)
        metrics = [tasks.apply(t).taskMetrics() for t in range(tasks.size())]
        reads = [m.get().shuffleReadMetrics() for m in metrics if m.isDefined()]
        sizes = sorted(int(r.localBytesRead()) + int(r.remoteBytesRead()) for r in reads)
        worst = max(worst, (sizes[-1], sizes[len(sizes) // 2])) if sizes else worst
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--cases", help="names separated by commas; other cases keep their earlier measurements")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="6g")
    arguments = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", arguments.memory)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    forced = spark.newSession()
    for key, value in FORCED.items():
        forced.conf.set(key, value)
    env = Environment(spark, config=OPTIONS, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        columns = "if(id % 10 < 6, 7, id % 100000) as k", "id as v", "substr(sha1(string(id)), 1, 12) as pad"
        spark.range(0, arguments.rows, 1, 16).selectExpr(*columns).write.parquet(f"{folder}/hot")
        spark.range(0, 200_000, 1, 2).where("id <> 9").selectExpr("id as j", "id % 10 as team").write.parquet(
            f"{folder}/keys"
        )
        tables = {
            session: (session.read.parquet(f"{folder}/hot"), session.read.parquet(f"{folder}/keys"))
            for session in (spark, forced)
        }
        saved = HERE / "results" / "skew.json"
        results = json.loads(saved.read_text()) if arguments.cases and saved.exists() else {}
        for name in arguments.cases.split(",") if arguments.cases else cases(*tables[spark]):
            times: dict[str, list[float]] = {"spark": [], "penstock": []}
            sizes = {}
            rows = {}
            for round_number in range(-1, arguments.rounds):
                order = ["spark", "penstock"][:: 1 if round_number % 2 else -1]
                for system in order:
                    first_stage = len(stage_list(spark))
                    start = time.perf_counter()
                    collected = (
                        cases(*tables[forced])[name].collect()
                        if system == "spark"
                        else env.collect(cases(*tables[spark])[name])
                    )
                    seconds = time.perf_counter() - start
                    rows[system] = sorted(map(str, collected))
                    if round_number >= 0:
                        times[system].append(seconds)
                    else:
                        sizes[system] = largest_task_bytes(spark, first_stage)
            if rows["spark"] != rows["penstock"]:
                raise SystemExit(f"{name}: the rows of Penstock and Spark differ")
            results[name] = {"seconds": times, "bytes": sizes}
            print(name, {system: round(statistics.median(t), 2) for system, t in times.items()}, sizes, flush=True)
    write(results, arguments)


def write(results: dict, arguments: argparse.Namespace) -> None:
    lines = [
        f"{arguments.rows:,} rows, a key in 60 % of them, {DATE_AND_COMMIT}: a run to warm up and "
        f"{arguments.rounds} counted, medians. {versions()}, local[2], {arguments.memory} driver. Spark: "
        + ", ".join(f"{key.removeprefix('spark.sql.')}={value}" for key, value in FORCED.items())
        + ".",
        "",
        "| case | Spark, s | Penstock, s | times as fast | largest / median task, Spark | largest / median task, Penstock |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, result in results.items():
        spark, penstock = (statistics.median(result["seconds"][system]) for system in ("spark", "penstock"))
        task_sizes = [
            " / ".join(f"{size / 2**20:.1f} MiB" for size in result["bytes"][system])
            for system in ("spark", "penstock")
        ]
        seconds = f"{spark:.2f} | {penstock:.2f} | {spark / penstock:.2f}"
        lines.append(f"| {name} | {seconds} | {task_sizes[0]} | {task_sizes[1]} |")
    (HERE / "results" / "skew.md").write_text("\n".join(lines) + "\n")
    (HERE / "results" / "skew.json").write_text(json.dumps(results, indent=1))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
