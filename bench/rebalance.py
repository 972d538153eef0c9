"""Compare the adaptive exchange with Spark's repartition, and with no exchange where all consumers are equally fast.

Every variant runs once to warm up, then once per round; the first variant rotates. Every run that returns rows checks their
number. The span is the time from the first batch of any consumer to the end of the last consumer. Medians are
written to bench/results/rebalance.md, with a chart of the sweep.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from penstock.connectors import Sink, SinkJob
from provenance import DATE_AND_COMMIT, versions

HERE = Path(__file__).parent
SPAN_SCHEMA = "rows long, began double, ended double"


def session(slots: int, **settings: str) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{slots}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.driver.memory", "6g").config("spark.log.level", "OFF").getOrCreate()


def sleeping_consumer(fast: float, slow: float, slow_tasks: tuple[int, ...]) -> Any:
    """Return a consumer that sleeps `fast` or `slow` seconds per row, and reports its rows, start and end."""

    def consume(batches: Any) -> Iterator[Any]:
        index = TaskContext.get().partitionId()
        seconds_per_row = slow if index in slow_tasks else fast
        began, rows = None, 0
        for batch in batches:
            began = began or time.time()
            if seconds_per_row:
                time.sleep(seconds_per_row * batch.num_rows)
            rows += batch.num_rows
        yield pa.record_batch({"rows": [rows], "began": [began or time.time()], "ended": [time.time()]})

    return consume


def cpu_bound_consumer(batches: Any) -> Iterator[Any]:
    """Consume rows in pure Python."""
    for batch in batches:
        total = 0
        for value in batch.column(0).to_pylist():
            total += value * value % 7
        yield pa.record_batch({"total": [total], "rows": [batch.num_rows]})


class NoopSink(Sink):
    """A sink that drops its rows (Spark's noop)."""

    restartable = True

    def open(self, spark: SparkSession) -> Any:
        return _NoopSinkJob()


class _NoopSinkJob(SinkJob):
    calls_python = False

    def write(self, df: DataFrame) -> None:
        df.write.format("noop").mode("overwrite").save()

    def commit(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def restart(self) -> bool:
        return True


class Bench:
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.lines: list[str] = []

    def compare(self, title: str, variants: dict) -> dict[str, tuple[float, float]]:
        """Return the medians of the span and of the whole job, in seconds, for each variant."""
        print(title, flush=True)
        spans: dict[str, list[float]] = {name: [] for name in variants}
        totals: dict[str, list[float]] = {name: [] for name in variants}
        for number in range(-1, self.rounds):
            names = list(variants)
            first = number % len(names)
            for name in names[first:] + names[:first]:
                started = time.perf_counter()
                span = variants[name]()
                seconds = time.perf_counter() - started
                if number >= 0:
                    totals[name].append(seconds)
                    spans[name].append(seconds if span is None else span)
        medians = {name: (statistics.median(spans[name]), statistics.median(totals[name])) for name in variants}
        for name, (span, total) in medians.items():
            print(f"  {name}: span {span:.2f} s, job {total:.2f} s", flush=True)
        return medians

    def add_lines(self, title: str, medians: dict[str, tuple[float, float]], base: str) -> None:
        for name, (span, total) in medians.items():
            times = f"{medians[base][0] / span:.2f} | {medians[base][1] / total:.2f}"
            self.lines.append(f"| {title} | {name} | {span:.2f} | {total:.2f} | {times} |")


def measure_span(df: DataFrame, rows: int, env: Environment | None = None) -> float:
    """Return the seconds between the first start of a consumer with rows and the last end of a consumer."""
    reports = df.collect() if env is None else env.collect(df)
    consumed = sum(report["rows"] for report in reports)
    if consumed != rows:
        raise SystemExit(f"{consumed} rows were consumed, not {rows}")
    return max(report["ended"] for report in reports) - min(report["began"] for report in reports if report["rows"])


def measure_slow_consumers(
    bench: Bench,
    spark: SparkSession,
    title: str,
    rows: int,
    tasks: int,
    slow_tasks: tuple[int, ...],
    fast: float,
    slow: float,
    sizes: Any,
) -> None:
    consumer = sleeping_consumer(fast, slow, slow_tasks)
    source = spark.range(0, rows, 1, tasks)
    spread = source.repartition(tasks)
    variants = {"repartition(n).mapInArrow": lambda: measure_span(spread.mapInArrow(consumer, SPAN_SCHEMA), rows)}
    for size in sizes:
        rebalanced = penstock.rebalance(source, tasks, adaptive=True, max_traverse_size=size)
        variants[f"adaptive, idlest of {size}"] = lambda rebalanced=rebalanced: measure_span(
            rebalanced.map_in_arrow(consumer, SPAN_SCHEMA), rows
        )
    bench.add_lines(title, bench.compare(title, variants), "repartition(n).mapInArrow")


def measure_without_barrier_stage(bench: Bench, spark: SparkSession) -> None:
    """Measure a consumer ten times slower than the other three, in a session that cannot run barrier stages."""
    env = Environment(spark, config={"taskmanager.network.adaptive-partitioner.enabled": True}, progress=False)
    rows, consumer = 160_000, sleeping_consumer(50e-6, 500e-6, (0,))
    source = spark.range(0, rows, 1, 4)
    spread = source.repartition(4).mapInArrow(consumer, SPAN_SCHEMA)
    plain = "repartition(4).mapInArrow, dynamic allocation"
    variants = {
        plain: lambda: measure_span(spread, rows),
        "the same, adaptive by an option": lambda: measure_span(spread, rows, env),
    }
    title = "one of four consumers ten times slower, 160 000 rows, no barrier stage"
    bench.add_lines(title, bench.compare(title, variants), plain)


def measure_equal_consumers(bench: Bench, spark: SparkSession, rows: int) -> None:
    env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
    source = spark.range(0, rows, 1, 4).select("id", F.col("id").cast("double").alias("value"))

    def identity(batches: Any) -> Any:
        return batches

    def run_plain(df: DataFrame) -> None:
        df.write.format("noop").mode("overwrite").save()

    def run_as_job(df: DataFrame) -> None:
        env.write(df, NoopSink())
        env.execute()

    title = f"{rows // 1_000_000} M rows of few bytes, equally fast consumers"
    adaptive = penstock.rebalance(source, 4, adaptive=True)
    variants = {
        "mapInArrow, no exchange": lambda: run_plain(source.mapInArrow(identity, source.schema)),
        "mapInArrow, no exchange, as a job": lambda: run_as_job(source.mapInArrow(identity, source.schema)),
        "repartition(4).mapInArrow": lambda: run_plain(source.repartition(4).mapInArrow(identity, source.schema)),
        "adaptive, as a job": lambda: run_as_job(adaptive.map_in_arrow(identity, source.schema)),
        "adaptive, plain PySpark": lambda: run_plain(adaptive.map_in_arrow(identity, source.schema)),
    }
    bench.add_lines(title, bench.compare(title, variants), "mapInArrow, no exchange")


def measure_python_function(bench: Bench, spark: SparkSession, rows: int) -> None:
    schema = "total long, rows long"
    source = spark.range(0, rows, 1, 4)

    def check_total(df: DataFrame) -> None:
        if df.agg(F.sum("rows")).first()[0] != rows:
            raise SystemExit("rows are missing")

    adaptive = penstock.rebalance(source, 4, adaptive=True)
    title = f"a function in pure Python, {rows // 1_000_000} M rows"
    variants = {
        "repartition(4).mapInArrow": lambda: check_total(source.repartition(4).mapInArrow(cpu_bound_consumer, schema)),
        "adaptive": lambda: check_total(adaptive.map_in_arrow(cpu_bound_consumer, schema)),
    }
    bench.add_lines(title, bench.compare(title, variants), "repartition(4).mapInArrow")


def draw_sweep(spark: SparkSession, path: Path) -> None:
    """Draw the spans over traverse sizes and batch lengths; a consumer is ten times slower than the other three."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    source = spark.range(0, 160_000, 1, 4)
    consumer = sleeping_consumer(50e-6, 500e-6, (0,))
    for records in (100, 1000, 10_000):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", records)
        spans = []
        for size in (2, 3, 4, 8):
            rebalanced = penstock.rebalance(source, 4, adaptive=True, max_traverse_size=size)
            spans.append(min(measure_span(rebalanced.map_in_arrow(consumer, SPAN_SCHEMA), 160_000) for _ in range(2)))
        axes.plot((2, 3, 4, 8), spans, marker="o", label=f"input batches of {records:,} rows")
        print(f"  sweep, {records}: {[round(span, 2) for span in spans]}", flush=True)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    axes.axhline(160_000 / (3 / 50e-6 + 1 / 500e-6), color="#333", linewidth=0.8, linestyle="--", label="ideal")
    axes.set_xlabel("consumers compared (max-traverse-size)")
    axes.set_ylabel("span, seconds (round-robin: 20)")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the case with equally fast consumers")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    spark = session(8)
    bench = Bench(arguments.rounds)
    measure_slow_consumers(
        bench, spark, "one of four consumers ten times slower, 160 000 rows", 160_000, 4, (0,), 50e-6, 500e-6, (4,)
    )
    measure_slow_consumers(
        bench, spark, "two adjacent of eight ten times slower, 320 000 rows", 320_000, 8, (0, 1), 50e-6, 500e-6, (2,)
    )
    measure_slow_consumers(
        bench, spark, "eight, subtasks 0 and 5 sleep 1 ms a row, 150 000 rows", 150_000, 8, (0, 5), 0.0, 1e-3, (2, 6)
    )
    measure_equal_consumers(bench, spark, arguments.rows)
    measure_python_function(bench, spark, arguments.rows // 5)
    draw_sweep(spark, arguments.output / "rebalance.png")
    spark.stop()
    # Spark ignores this setting in local mode, but Penstock avoids barrier stages because of it.
    measure_without_barrier_stage(bench, session(8, **{"spark.dynamicAllocation.enabled": "true"}))
    lines = [
        (
            f"Rebalance, {DATE_AND_COMMIT}: a run to warm up and {arguments.rounds} counted, medians. "
            f"{versions()}, local[8] on {os.cpu_count()} cores."
        ),
        "",
        "| case | variant | span, s | whole job, s | times as fast by span | by whole job |",
        "|---|---|--:|--:|--:|--:|",
        *bench.lines,
    ]
    text = "\n".join(lines) + "\n"
    (arguments.output / "rebalance.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
