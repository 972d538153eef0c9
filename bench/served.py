"""Measure sessions served by Penstock: small queries, the overhead of Python, and TPC-H or TPC-DS by spark.sql.

Every system runs every query once to warm up, then once per round; the first system rotates. A table of medians is
written to bench/results/served.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from processes import cpu_seconds
from provenance import DATE_AND_COMMIT, versions

RESULTS = Path(__file__).parent / "results"
NO_THRESHOLD = {"execution.batch.adaptive.whole-query-threshold": 0}


@dataclass(frozen=True)
class Measurement:
    """Median wall seconds, and median CPU seconds of the driver, the JVM and all workers."""

    seconds: float
    cpu: float


def measure(systems: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Measurement]:
    """Run each system once per round, the first system rotating; return the medians of each system."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    names = list(systems)
    for name in names:
        systems[name]()
    for number in range(rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            cpu, started = cpu_seconds(os.getpid()), time.perf_counter()
            systems[name]()
            seconds = time.perf_counter() - started
            runs[name].append((seconds, cpu_seconds(os.getpid()) - cpu))
    return {name: Measurement(*map(statistics.median, zip(*times, strict=True))) for name, times in runs.items()}


def with_setting(spark: SparkSession, *, enabled: bool, run: Callable[[], Any]) -> Callable[[], Any]:
    def measured() -> Any:
        spark.conf.set("spark.penstock.enabled", str(enabled).lower())
        return run()

    return measured


def small_queries(spark: SparkSession, folder: Path, rounds: int) -> dict[str, Measurement]:
    """Measure a query below the threshold, which Spark runs: Penstock only adds the cost of the decision."""
    path = str(folder / "small")
    spark.conf.set("spark.penstock.enabled", "false")
    spark.range(1000).withColumn("k", F.col("id") % 7).write.mode("overwrite").parquet(path)

    def run() -> Any:
        return spark.read.schema("id long, k long").parquet(path).groupBy("k").agg(F.sum("id")).collect()

    penstock.enable(spark)
    return measure(
        {"Spark": with_setting(spark, enabled=False, run=run), "served": with_setting(spark, enabled=True, run=run)},
        rounds,
    )


def python_overhead(spark: SparkSession, rounds: int) -> dict[str, Measurement]:
    """Measure a query that Penstock executes, by ``DataFrame.collect`` and by `Environment.collect`."""
    env = Environment(spark, config=NO_THRESHOLD, progress=False)

    def query() -> Any:
        return spark.range(1000).groupBy((F.col("id") % 7).alias("k")).agg(F.sum("id"))

    penstock.enable(spark, config=NO_THRESHOLD)
    systems = {
        "Environment.collect": with_setting(spark, enabled=False, run=lambda: env.collect(query())),
        "served": with_setting(spark, enabled=True, run=lambda: query().collect()),
    }
    return measure(systems, rounds)


def queries(spark: SparkSession, data: Path, rounds: int) -> dict[str, dict[str, Measurement]]:
    """Measure TPC-H or TPC-DS by Spark, by an environment, and in a served session."""
    for file in sorted(data.glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    texts = json.loads((data.parent / "queries" / f"{data.name.split('-')[0]}.json").read_text())
    env = Environment(spark, progress=False)
    penstock.enable(spark)
    medians = {}
    for number, text in sorted(texts.items(), key=lambda query: int(query[0])):
        plain = with_setting(spark, enabled=False, run=lambda text=text: spark.sql(text).collect())
        systems = {
            "Spark": plain,
            "Environment": with_setting(spark, enabled=False, run=lambda text=text: env.collect(spark.sql(text))),
            "served": with_setting(spark, enabled=True, run=lambda text=text: spark.sql(text).collect()),
        }
        medians[number] = measure(systems, rounds)
        print(
            number,
            *(f"{name} {median.seconds:.2f} s, CPU {median.cpu:.2f}" for name, median in medians[number].items()),
            flush=True,
        )
    return medians


def table(rows: Mapping[str, Mapping[str, Measurement]]) -> str:
    columns = list(next(iter(rows.values())))
    lines = [
        f"| query | {' | '.join(columns)} | CPU: {' | CPU: '.join(columns)} |",
        "|---|" + "--:|" * 2 * len(columns),
    ]
    for name, row in rows.items():
        seconds, cpu = (
            " | ".join(f"{getattr(row[system], metric):.2f}" for system in columns) for metric in ("seconds", "cpu")
        )
        lines.append(f"| {name} | {seconds} | {cpu} |")
    seconds, cpu = (
        " | ".join(f"{sum(getattr(row[system], metric) for row in rows.values()):.1f}" for system in columns)
        for metric in ("seconds", "cpu")
    )
    ratios = "; ".join(
        f"{system} by {base}: {mean_ratio(rows, system, base, 'seconds'):.3f} in seconds, {mean_ratio(rows, system, base, 'cpu'):.3f} in CPU seconds"
        for system, base in (("Environment", "Spark"), ("served", "Spark"), ("served", "Environment"))
    )
    return "\n".join([*lines, f"| **total** | {seconds} | {cpu} |", "", f"Geometric means. {ratios}."])


def mean_ratio(rows: Mapping[str, Mapping[str, Measurement]], system: str, base: str, metric: str) -> float:
    """Return the geometric mean of the ratios of two systems; figures below a clock tick (0.01 s) count as a tick."""
    return statistics.geometric_mean(
        max(getattr(row[system], metric), 0.01) / max(getattr(row[base], metric), 0.01) for row in rows.values()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="folders of parquet files, such as data/tpch-1 data/tpcds-1"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds over each folder's queries")
    parser.add_argument("--small", type=int, default=1000, help="number of small queries per system")
    parser.add_argument(
        "--asked", dest="executed", type=int, default=100, help="number of small queries that Penstock executes"
    )
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]").config("spark.driver.memory", "8g").config("spark.log.level", "ERROR")
    )
    spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    lines = [
        "# A served session",
        "",
        f"{DATE_AND_COMMIT}, {versions()}. Seconds, medians. A single process, two cores; the first system rotates. CPU seconds are those of the driver, the JVM and all workers.",
        "",
    ]
    if arguments.small:
        small = small_queries(spark, arguments.data[0].parent / "served", arguments.small)
        overhead_ratio = small["served"].seconds / small["Spark"].seconds - 1
        lines += [
            (
                f"* {arguments.small} queries below the threshold, which Spark runs: {small['Spark'].seconds * 1000:.1f} ms without, "
                f"{small['served'].seconds * 1000:.1f} ms with ({overhead_ratio:+.1%}); CPU {small['Spark'].cpu * 1000:.0f} and {small['served'].cpu * 1000:.0f} ms."
            )
        ]
        print(lines[-1], flush=True)
    if arguments.executed:
        overhead = python_overhead(spark, arguments.executed)
        extra_ms = (overhead["served"].seconds - overhead["Environment.collect"].seconds) * 1000
        lines += [
            (
                f"* {arguments.executed} small queries that Penstock executes: {overhead['Environment.collect'].seconds * 1000:.1f} ms by "
                f"`Environment.collect`, {overhead['served'].seconds * 1000:.1f} ms by `DataFrame.collect` ({extra_ms:+.1f} ms); CPU {overhead['Environment.collect'].cpu * 1000:.0f} and {overhead['served'].cpu * 1000:.0f} ms."
            )
        ]
        print(lines[-1], flush=True)
    for data in arguments.data if arguments.rounds else ():
        lines += [
            "",
            f"## {data.name}, {arguments.rounds} rounds",
            "",
            table(queries(spark, data, arguments.rounds)),
        ]
    (RESULTS / "served.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
