"""Measure 1, 4 and 8 concurrent streams of TPC-H or TPC-DS queries in an application, on Spark with AQE and on Penstock.

Each stream runs all queries sequentially, in a different order. Rows are compared with those of an unmeasured first run. A
table and a chart are written to bench/results.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from processes import machine_cpu_seconds
from provenance import DATE_AND_COMMIT, versions
from rows import comparable

HERE = Path(__file__).parent
SYSTEMS = {"spark": "Spark, AQE", "penstock": "Penstock"}


@dataclass(frozen=True)
class Measurement:
    """Metrics of concurrent streams.

    Parameters
    ----------
    seconds
        Wall seconds until the last stream ended.
    cpu
        CPU seconds of the machine.
    queries
        Seconds of each query.
    """

    seconds: float
    cpu: float
    queries: list[float]

    @property
    def per_hour(self) -> float:
        """The throughput in queries per hour."""
        return 3600 * len(self.queries) / self.seconds

    @property
    def row(self) -> list[float]:
        """The figures in a row of the table."""
        slowest_twentieth = statistics.quantiles(self.queries, n=20)[-1]
        return [self.per_hour, statistics.median(self.queries), slowest_twentieth, self.seconds, self.cpu]


class Application:
    """An application with a session for each stream; fair scheduling shares its cores."""

    def __init__(self, data: Path, cores: int, memory: str) -> None:
        builder = SparkSession.builder.master(f"local[{cores}]").config("spark.scheduler.mode", "FAIR")
        builder = builder.config("spark.driver.memory", memory).config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
        self.spark = builder.getOrCreate()
        self.data = data

    def stream(self, system: str) -> Callable[[str], list[str]]:
        """Return a function that runs queries in a new session and returns their rows."""
        session = self.spark.newSession()
        for file in sorted(self.data.glob("*.parquet")):
            session.read.parquet(str(file)).createOrReplaceTempView(file.stem)
        if system == "spark":
            return lambda text: comparable(session.sql(text).collect())
        env = Environment(session, progress=False)
        return lambda text: comparable(env.collect(session.sql(text)))

    def measure(
        self, system: str, streams: int, queries: dict[str, str], expected: dict[str, list[str]]
    ) -> Measurement:
        """Run the queries in concurrent streams; exit if a stream returns unexpected rows."""

        def run_stream(stream: int) -> list[float]:
            run, order = runs[stream], list(queries)
            random.Random(stream).shuffle(order)
            times = []
            for number in order:
                start = time.perf_counter()
                rows = run(queries[number])
                times.append(time.perf_counter() - start)
                if rows != expected[number]:
                    raise SystemExit(f"Q{number}: {SYSTEMS[system]} returned other rows in stream {stream}")
            return times

        runs = [self.stream(system) for _ in range(streams)]
        start, cpu = time.perf_counter(), machine_cpu_seconds()
        with ThreadPoolExecutor(streams) as pool:
            times = [seconds for stream in pool.map(run_stream, range(streams)) for seconds in stream]
        return Measurement(time.perf_counter() - start, machine_cpu_seconds() - cpu, times)


def table(results: dict[tuple[str, int], Measurement], about: str) -> str:
    headers = ["streams", "", "queries an hour", "median query, s", "slowest twentieth, s", "all, s", "CPU seconds"]
    lines = [about, "", "| " + " | ".join(headers) + " |", "|--:|---" + "|--:" * (len(headers) - 2) + "|"]
    for (system, streams), measured in results.items():
        hour, *others = measured.row
        cells = [str(streams), SYSTEMS[system], f"{hour:.0f}", *(f"{value:.1f}" for value in others)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def chart(results: dict[tuple[str, int], Measurement], title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2))
    streams = sorted({number for _, number in results})
    for index, (system, name) in enumerate(SYSTEMS.items()):
        heights = [results[system, number].per_hour for number in streams if (system, number) in results]
        axes.bar([x + 0.4 * index for x in range(len(heights))], heights, 0.38, label=name)
    axes.set_xticks([x + 0.2 for x in range(len(streams))], [f"{number} concurrent" for number in streams])
    axes.set_ylabel("queries an hour")
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of parquet files, such as data/tpch-1")
    parser.add_argument("--streams", default="1,4,8")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"comma-separated: {', '.join(SYSTEMS)}")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the table and the chart")
    arguments = parser.parse_args()
    kind = arguments.data.name.split("-")[0]
    queries = json.loads((HERE.parent / "data" / "queries" / f"{kind}.json").read_text())
    application = Application(arguments.data, arguments.cores, arguments.memory)
    first = application.stream("spark")
    expected = {number: first(text) for number, text in queries.items()}
    results: dict[tuple[str, int], Measurement] = {}
    for streams in map(int, arguments.streams.split(",")):
        for system in arguments.systems.split(","):
            if not any(name == system for name, _ in results):
                application.measure(system, 1, queries, expected)  # warm up
            results[system, streams] = measured = application.measure(system, streams, queries, expected)
            print(f"{streams} streams, {SYSTEMS[system]}: {measured.per_hour:.0f} queries an hour", flush=True)
    about = (
        f"{arguments.data.name}, {DATE_AND_COMMIT}: all {len(queries)} queries by each stream, in different orders; streams of an "
        f"application with fair scheduling. {versions()}, "
        f"local[{arguments.cores}], {arguments.memory} driver, {os.cpu_count()} cores. Penstock: all options at their defaults."
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = table(results, about)
    (arguments.output / f"throughput-{arguments.data.name}.md").write_text(text)
    picture = arguments.output / f"throughput-{arguments.data.name}.png"
    chart(results, f"{arguments.data.name}: concurrent streams", picture)
    print(text)


if __name__ == "__main__":
    main()
