"""What it costs, and gains, that Penstock serves a session: small queries, the way through Python, and TPC-H or TPC-DS by spark.sql.

Every system runs every query once uncounted, then in each round once, taking turns at going first. Medians and a table
go to bench/results/served.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from processes import cpu_seconds
from provenance import STATE, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESULTS = Path(__file__).parent / "results"
ALL_TAKEN = {"execution.batch.adaptive.whole-query-threshold": 0}


@dataclass(frozen=True)
class Measured:
    """Medians of one system: wall seconds, and CPU seconds of the driver, the JVM and all workers."""

    seconds: float
    cpu: float


def paired(systems: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Measured]:
    """Return the medians of each system; each goes first, second and so on as often as the others."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    names = list(systems)
    for name in names:
        systems[name]()
    for number in range(rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            cpu, started = cpu_seconds(os.getpid()), time.perf_counter()
            systems[name]()
            seconds = time.perf_counter() - started
            found[name].append((seconds, cpu_seconds(os.getpid()) - cpu))
    return {name: Measured(*map(statistics.median, zip(*each, strict=True))) for name, each in found.items()}


def switched(spark: SparkSession, *, on: bool, run: Callable[[], Any]) -> Callable[[], Any]:
    def measured() -> Any:
        spark.conf.set("spark.penstock.enabled", str(on).lower())
        return run()

    return measured


def small_queries(spark: SparkSession, folder: Path, rounds: int) -> dict[str, Measured]:
    """A query below the threshold, which is left to Spark: what asking costs."""
    path = str(folder / "small")
    spark.conf.set("spark.penstock.enabled", "false")
    spark.range(1000).withColumn("k", F.col("id") % 7).write.mode("overwrite").parquet(path)

    def run() -> Any:
        return spark.read.schema("id long, k long").parquet(path).groupBy("k").agg(F.sum("id")).collect()

    penstock.enable(spark)
    return paired({"Spark": switched(spark, on=False, run=run), "served": switched(spark, on=True, run=run)}, rounds)


def way_through_python(spark: SparkSession, rounds: int) -> dict[str, Measured]:
    """A query that is taken: by its own action, and by an environment."""
    env = Environment(spark, config=ALL_TAKEN, progress=False)

    def query() -> Any:
        return spark.range(1000).groupBy((F.col("id") % 7).alias("k")).agg(F.sum("id"))

    penstock.enable(spark, config=ALL_TAKEN)
    systems = {
        "Environment.collect": switched(spark, on=False, run=lambda: env.collect(query())),
        "served": switched(spark, on=True, run=lambda: query().collect()),
    }
    return paired(systems, rounds)


def queries(spark: SparkSession, data: Path, rounds: int) -> dict[str, dict[str, Measured]]:
    """The queries of TPC-H or TPC-DS: Spark's, an environment's, and those of a served session."""
    for file in sorted(data.glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    texts = json.loads((data.parent / "queries" / f"{data.name.split('-')[0]}.json").read_text())
    env = Environment(spark, progress=False)
    penstock.enable(spark)
    found = {}
    for number, text in sorted(texts.items(), key=lambda one: int(one[0])):
        plain = switched(spark, on=False, run=lambda text=text: spark.sql(text).collect())
        systems = {
            "Spark": plain,
            "Environment": switched(spark, on=False, run=lambda text=text: env.collect(spark.sql(text))),
            "served": switched(spark, on=True, run=lambda text=text: spark.sql(text).collect()),
        }
        found[number] = paired(systems, rounds)
        print(
            number,
            *(f"{name} {one.seconds:.2f} s, CPU {one.cpu:.2f}" for name, one in found[number].items()),
            flush=True,
        )
    return found


def table(rows: Mapping[str, Mapping[str, Measured]]) -> str:
    columns = list(next(iter(rows.values())))
    lines = [
        f"| query | {' | '.join(columns)} | CPU: {' | CPU: '.join(columns)} |",
        "|---|" + "--:|" * 2 * len(columns),
    ]
    for name, each in rows.items():
        seconds, cpu = (" | ".join(f"{getattr(each[one], what):.2f}" for one in columns) for what in ("seconds", "cpu"))
        lines.append(f"| {name} | {seconds} | {cpu} |")
    seconds, cpu = (
        " | ".join(f"{sum(getattr(each[one], what) for each in rows.values()):.1f}" for one in columns)
        for what in ("seconds", "cpu")
    )
    ratios = "; ".join(
        f"{one} by {other}: {mean_ratio(rows, one, other, 'seconds'):.3f} in seconds, {mean_ratio(rows, one, other, 'cpu'):.3f} in CPU seconds"
        for one, other in (("Environment", "Spark"), ("served", "Spark"), ("served", "Environment"))
    )
    return "\n".join([*lines, f"| **total** | {seconds} | {cpu} |", "", f"Geometric means. {ratios}."])


def mean_ratio(rows: Mapping[str, Mapping[str, Measured]], one: str, other: str, what: str) -> float:
    """Return the geometric mean of one system's figures by another's; figures of clock ticks are at least one tick."""
    return statistics.geometric_mean(
        max(getattr(each[one], what), 0.01) / max(getattr(each[other], what), 0.01) for each in rows.values()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="folders of parquet files, such as data/tpch-1 data/tpcds-1"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each folder's queries")
    parser.add_argument("--small", type=int, default=1000, help="how many small queries each system runs")
    parser.add_argument("--asked", type=int, default=100, help="how many queries go through Python each way")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]").config("spark.driver.memory", "8g").config("spark.log.level", "ERROR")
    )
    spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    lines = [
        "# A served session",
        "",
        f"{STATE}, {versions()}. Seconds, medians. One process, two cores; the systems take turns at going first. CPU seconds are those of the driver, the JVM and all workers.",
        "",
    ]
    if arguments.small:
        small = small_queries(spark, arguments.data[0].parent / "served", arguments.small)
        more = small["served"].seconds / small["Spark"].seconds - 1
        lines += [
            (
                f"* {arguments.small} queries below the threshold, left to Spark: {small['Spark'].seconds * 1000:.1f} ms without, "
                f"{small['served'].seconds * 1000:.1f} ms with ({more:+.1%}); CPU {small['Spark'].cpu * 1000:.0f} and {small['served'].cpu * 1000:.0f} ms."
            )
        ]
        print(lines[-1], flush=True)
    if arguments.asked:
        asked = way_through_python(spark, arguments.asked)
        extra = (asked["served"].seconds - asked["Environment.collect"].seconds) * 1000
        lines += [
            (
                f"* {arguments.asked} small queries that are taken: {asked['Environment.collect'].seconds * 1000:.1f} ms by "
                f"`Environment.collect`, {asked['served'].seconds * 1000:.1f} ms by their own action ({extra:+.1f} ms); CPU {asked['Environment.collect'].cpu * 1000:.0f} and {asked['served'].cpu * 1000:.0f} ms."
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
