"""Compare Penstock's three methods of changing a stopped query's key groups with Spark's own repartitioning.

The state of an aggregation is built once. Every run gets a fresh copy of that checkpoint. The first method rotates, and
the first round is dropped. The measurements are wall seconds, CPU seconds of the JVM, shuffled bytes (Spark's status store), bytes
that the JVM read and wrote, and the seconds of the first batch after the restart. The first output after the restart
is compared with that of the original checkpoint. Medians are written to bench/results/state.md.

With --live, the query keeps running: each round starts a new query, waits for its state, rescales it, and adds input. The
complete output is compared with that of a query that is not rescaled. The figures are written to bench/results/state-live.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock.state as st
from penstock.state.rewrite_methods import RewriteMethod

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


from provenance import DATE_AND_COMMIT, versions

HERE = Path(__file__).parent
STORE = "spark.sql.streaming.stateStore"
TRACK_ROWS = f"{STORE}.rocksdb.trackTotalNumberOfRows"
MIB = 1 << 20
RESCALES = {"4 to 8": (4, 8), "4 to 16": (4, 16), "8 to 4": (8, 4), "4 to 6": (4, 6)}


def session(cores: int) -> SparkSession:
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.driver.memory", "6g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config(f"{STORE}.providerClass", provider).config("spark.log.level", "OFF")
    return builder.getOrCreate()


class Meter:
    """Resources that the JVM has used since the creation of the meter."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
        self._group = f"bench-{time.monotonic_ns()}"
        spark.sparkContext.setJobGroup(self._group, "bench")
        self._cpu, self._read, self._written = self._totals()
        self._began = time.monotonic()

    def _totals(self) -> tuple[float, int, int]:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        io = dict(line.split(": ") for line in Path(f"/proc/{self._pid}/io").read_text().splitlines())
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(io["rchar"]), int(io["wchar"])

    def read(self) -> dict[str, float]:
        wall = time.monotonic() - self._began
        cpu, read, written = self._totals()
        store = self._spark._jsc.sc().statusStore()
        shuffled = 0
        for job in self._spark.sparkContext.statusTracker().getJobIdsForGroup(self._group):
            stages = store.job(job).stageIds()
            for i in range(stages.size()):
                shuffled += store.lastStageAttempt(stages.apply(i)).shuffleWriteBytes()
        return {
            "wall": wall,
            "cpu": cpu - self._cpu,
            "shuffled": shuffled,
            "read": read - self._read,
            "written": written - self._written,
        }


def write_rows(spark: SparkSession, folder: Path, number: int, low: int, high: int) -> None:
    columns = F.concat(F.lit("key of a user "), F.col("id")).alias("k"), (F.col("id") % 97).alias("v")
    staging = folder / str(number)
    spark.range(low, high, 1, 4).select(*columns).write.parquet(str(staging))
    for i, file in enumerate(sorted(staging.glob("*.parquet"))):
        shutil.move(file, folder / f"{number}-{i}.parquet")
    shutil.rmtree(staging)


def run_query(spark: SparkSession, folder: Path, checkpoint: Path, groups: int) -> tuple[float, list]:
    """Run the query over new input; return the seconds, and a row of checksums for each batch."""
    checksums = []
    spark.conf.set("spark.sql.shuffle.partitions", str(groups))
    source = spark.readStream.schema("k string, v long").parquet(str(folder))
    counted = source.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))

    def add_checksum(df: DataFrame, _: Any) -> None:
        checksums.append(
            df.agg(F.count("*"), F.sum("n"), F.sum("total"), F.sum(F.xxhash64("k", "n", "total") % 1_000_003)).first()
        )

    began = time.monotonic()
    writer = counted.writeStream.outputMode("update").foreachBatch(add_checksum).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return time.monotonic() - began, checksums


def repartition_by_spark(spark: SparkSession, checkpoint: str, groups: int, *, tracked: bool) -> None:
    spark.conf.set(TRACK_ROWS, str(tracked).lower())
    try:
        spark._streamingCheckpointManager.repartition(checkpoint, groups)
    finally:
        spark.conf.unset(TRACK_ROWS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds, after a round that is dropped")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--keys", type=int, nargs="+", default=[3_000_000, 20_000_000])
    parser.add_argument("--changes", nargs="+", choices=RESCALES, default=list(RESCALES))
    parser.add_argument("--live", action="store_true", help="rescale the query while it runs")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    spark = session(arguments.cores)
    if arguments.live:
        measure_live(spark, arguments)
        return
    lines = []
    with tempfile.TemporaryDirectory() as name:
        for keys in arguments.keys:
            lines += measure(spark, Path(name) / str(keys), keys, arguments)
            shutil.rmtree(Path(name) / str(keys))
    title = (
        f"State, {DATE_AND_COMMIT}: the first round dropped and {arguments.rounds} counted, medians. "
        f"{versions()}, local[{arguments.cores}]. CPU: seconds of the JVM."
    )
    header = [
        "| keys | change | method | wall, s | CPU, s | CPU, Spark's = 1 | shuffled, MiB | read, MiB | written, MiB | first batch, s |",
        "|--:|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    write_table(arguments.output or HERE / "results" / "state.md", [title, "", *header, *lines])


def write_table(output: Path, lines: list[str]) -> None:
    output.write_text("\n".join([*lines, ""]))
    print(output.read_text())


def measure_live(spark: SparkSession, arguments: argparse.Namespace) -> None:
    lines = []
    for keys in arguments.keys:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for number, (low, high) in enumerate([(0, keys), (keys - keys // 4, keys + keys // 10)]):
                (folder / f"input-{number}").mkdir()
                write_rows(spark, folder / f"input-{number}", number, low, high)
            # A single file cannot be divided between two batches.
            spark.read.parquet(str(folder / "input-1")).coalesce(1).write.parquet(str(folder / "single"))
            for label in arguments.changes:
                old, new = RESCALES[label]
                run_live(spark, folder, old, None)
                expected, reference = run_live(spark, folder, old, None)
                figures = []
                for turn in range(arguments.rounds + 1):
                    checksums, figure = run_live(spark, folder, old, new)
                    assert checksums == expected, f"{label}: {checksums} instead of {expected}"
                    print(f"{keys:,} {label}, round {turn}: {figure}", flush=True)
                    figures.append(figure)
                medians = {key: statistics.median(run[key] for run in figures[1:]) for key in figures[0]}
                spread = [run["stopped"] for run in figures[1:]]
                lines.append(
                    f"| {keys:,} | {label} | {medians['stopped']:.1f} ({min(spread):.1f} to {max(spread):.1f}) "
                    f"| {medians['rescale']:.1f} | {medians['batch']:.1f} | {reference['batch']:.1f} |"
                )
    title = (
        f"Rescaling a running query, {DATE_AND_COMMIT}: the first round dropped and {arguments.rounds} counted, medians. "
        f"{versions()}, local[{arguments.cores}]. The whole output of every "
        "round equals that of a query that is not rescaled."
    )
    header = [
        "| keys | change | stopped, s (min to max) | of these the rescale, s | next batch, s | without a rescale, s |",
        "|--:|---|--:|--:|--:|--:|",
    ]
    write_table(arguments.output or HERE / "results" / "state-live.md", [title, "", *header, *lines])


def run_live(spark: SparkSession, folder: Path, old: int, new: int | None) -> tuple[list, dict[str, float]]:
    """Run the query over both inputs, rescaled after the first; return the checksums of each batch, and seconds."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "in").mkdir(parents=True)
    checksums: list[Any] = []

    def add_checksum(df: DataFrame, _: Any) -> None:
        digest = F.sum(F.xxhash64("k", "n", "total") % 1_000_003)
        checksums.append(tuple(df.agg(F.count("*"), F.sum("n"), F.sum("total"), digest).first()))

    for file in (folder / "input-0").iterdir():
        os.link(file, work / "in" / file.name)
    source = spark.readStream.schema("k string, v long").parquet(str(work / "in"))
    counted = source.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    writer = counted.writeStream.outputMode("update").foreachBatch(add_checksum).trigger(processingTime="1 second")
    query = st.start_query(writer, str(work / "checkpoint"), config={"pipeline.max-parallelism": old}, spark=spark)
    query.processAllAvailable()
    figures: dict[str, float] = {}
    if new is not None:
        report = query.rescale(new)
        figures = {"stopped": report.seconds_stopped, "rescale": report.rescale.seconds}
    (later,) = (folder / "single").glob("*.parquet")
    os.link(later, work / "in" / later.name)
    began = time.monotonic()
    query.processAllAvailable()
    figures["batch"] = time.monotonic() - began
    query.stop()
    return checksums, figures


def measure(spark: SparkSession, folder: Path, keys: int, arguments: argparse.Namespace) -> list[str]:
    lines = []
    for label in arguments.changes:
        old, new = RESCALES[label]
        before, later = folder / f"in-{old}", folder / f"later-{old}"
        checkpoint = folder / f"checkpoint-{old}"
        if not checkpoint.exists():
            before.mkdir(parents=True)
            write_rows(spark, before, 0, 0, keys)
            run_query(spark, before, checkpoint, old)
            shutil.copytree(before, later)
            write_rows(spark, later, 1, keys - keys // 4, keys + keys // 10)
            # Streams identify their input by its path.
            shutil.rmtree(before)
            shutil.move(later, before)
            shutil.copytree(checkpoint, folder / f"original-{old}")
            (folder / f"original-{old}.txt").write_text(
                str(run_query(spark, before, folder / f"original-{old}", old)[1])
            )
        expected = (folder / f"original-{old}.txt").read_text()
        methods = {
            "Spark, rows counted": lambda at, n=new: repartition_by_spark(spark, at, n, tracked=True),
            "Spark": lambda at, n=new: repartition_by_spark(spark, at, n, tracked=False),
            "Penstock, files": lambda at, n=new: st.rescale(at, n, spark=spark, method=RewriteMethod.FILES),
        }
        other = RewriteMethod.SHUFFLE if label == "4 to 6" else RewriteMethod.ROWS
        methods[f"Penstock, {other}"] = lambda at, n=new, w=other: st.rescale(at, n, spark=spark, method=w)
        figures: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
        for turn in range(arguments.rounds + 1):
            order = list(methods)[turn % len(methods) :] + list(methods)[: turn % len(methods)]
            for method in order:
                copy = folder / "copy"
                shutil.copytree(checkpoint, copy)
                meter = Meter(spark)
                methods[method](str(copy))
                figure = meter.read()
                figure["batch"], checksums = run_query(spark, before, copy, new)
                assert str(checksums) == expected, f"{method}: {checksums} instead of {expected}"
                shutil.rmtree(copy)
                figures[method].append(figure)
                print(
                    f"{keys:,} {label} {method}: {figure['wall']:.1f} s, CPU {figure['cpu']:.1f} s, {figure['shuffled']} B",
                    flush=True,
                )
        base = statistics.median(run["cpu"] for run in figures["Spark, rows counted"][1:])
        for method, runs in figures.items():
            medians = {key: statistics.median(run[key] for run in runs[1:]) for key in runs[0]}
            lines.append(
                f"| {keys:,} | {label} | {method} | {medians['wall']:.1f} | {medians['cpu']:.1f} | {medians['cpu'] / base:.2f} "
                f"| {medians['shuffled'] / MIB:.1f} | {medians['read'] / MIB:.0f} | {medians['written'] / MIB:.0f} | {medians['batch']:.1f} |"
            )
    return lines


if __name__ == "__main__":
    main()
