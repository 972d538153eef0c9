"""Compare TPC-H or TPC-DS on Spark with AQE, hand-tuned Spark, Penstock and Penstock with execution.verify, in a single process.

Every system runs every query once to warm up, then once per round; the first system rotates. Every run compares the
rows. Medians, a table and a chart are written to bench/results; --resume continues an interrupted run.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from processes import machine_cpu_seconds
from provenance import DATE_AND_COMMIT, versions
from rows import comparable
from sail import VERSION, Sail

HERE = Path(__file__).parent
MIB = 1 << 20
SETTLE_SECONDS = 0.3
"""Seconds until Spark's status store contains the tasks that have ended."""
SYSTEMS = {
    "spark": "Spark, AQE",
    "tuned": "Spark, tuned",
    "statistics": "Spark, statistics and CBO",
    "penstock": "Penstock",
    "native": "Penstock with execution.native",
    "sail": f"Sail {VERSION}",
    "verified": "Penstock with execution.verify",
}
DEFAULT = ("spark", "tuned", "penstock")
TUNED = {
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "512m",
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "100m",
}
COST_BASED = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
"""Settings of the session whose tables have statistics of all columns."""


def session(cores: int, memory: str) -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def cost_based_session(spark: SparkSession, data: Path) -> SparkSession:
    """Return a session with statistics of all columns, which orders joins by cost."""
    session = spark.newSession()
    session.sql("CREATE DATABASE with_statistics")
    session.catalog.setCurrentDatabase("with_statistics")
    for key, value in COST_BASED.items():
        session.conf.set(key, value)
    for file in sorted(data.glob("*.parquet")):
        session.sql(f"CREATE TABLE {file.stem} USING parquet LOCATION '{file.resolve()}'")
        session.sql(f"ANALYZE TABLE {file.stem} COMPUTE STATISTICS FOR ALL COLUMNS")
    return session


class Bench:
    """The compared systems, over a folder of tables."""

    def __init__(self, data: Path, cores: int, memory: str, systems: list[str], options: dict[str, str]) -> None:
        self.spark = session(cores, memory)
        tuned = self.spark.newSession()
        for key, value in TUNED.items():
            tuned.conf.set(key, value)
        for spark in (self.spark, tuned):
            for file in sorted(data.glob("*.parquet")):
                spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
        cost_based = cost_based_session(self.spark, data) if "statistics" in systems else self.spark
        self.env = Environment(self.spark, config=options, progress=False)
        native, verified = (
            Environment(self.spark, config=options | {option: True}, progress=False)
            for option in ("execution.native", "execution.verify")
        )
        runs = {
            "spark": lambda text: self.spark.sql(text).collect(),
            "tuned": lambda text: tuned.sql(text).collect(),
            "statistics": lambda text: cost_based.sql(text).collect(),
            "penstock": lambda text: self.env.collect(self.spark.sql(text)),
            "native": lambda text: native.collect(self.spark.sql(text)),
            "verified": lambda text: verified.collect(self.spark.sql(text)),
        }
        if "sail" in systems:
            runs["sail"] = Sail(data, cores).rows
        self.differing_queries: list[str] = []
        self.spilled_by_stage: dict[tuple[int, int], int] = {}
        self.runs = {name: runs[name] for name in systems}

    def counters(self) -> tuple[float, float, float, float]:
        """Return the totals so far: CPU seconds of the machine, and MiB that Spark has read, shuffled and spilled."""
        time.sleep(SETTLE_SECONDS)
        store = self.spark._jsc.sc().statusStore()
        executor_list = store.executorList(False)
        executors = [executor_list.apply(i) for i in range(executor_list.size())]
        return (
            machine_cpu_seconds(),
            sum(executor.totalInputBytes() for executor in executors) / MIB,
            sum(executor.totalShuffleWrite() for executor in executors) / MIB,
            self._spilled_bytes() / MIB,
        )

    def _spilled_bytes(self) -> int:
        """Return the bytes that finished stages have spilled to disk, including stages that Spark no longer retains."""
        jvm = self.spark._jvm
        no_quantiles = self.spark.sparkContext._gateway.new_array(jvm.double, 0)
        none = jvm.java.util.ArrayList()
        stages = self.spark._jsc.sc().statusStore().stageList(none, False, False, no_quantiles, none)
        for index in range(stages.size()):
            stage = stages.apply(index)
            if (stage.stageId(), stage.attemptId()) in self.spilled_by_stage:
                break  # the newest come first
            self.spilled_by_stage[stage.stageId(), stage.attemptId()] = stage.diskBytesSpilled()
        return sum(self.spilled_by_stage.values())

    def query(self, number: str, text: str, rounds: int) -> dict[str, list]:
        """Return the seconds and counters of each system, and the number of Penstock's vertices."""
        times: dict[str, list] = {name: [] for name in self.runs}
        work: dict[str, list] = {name: [] for name in self.runs}
        for round_number in range(-1, rounds):  # the first round warms up
            names = list(self.runs)
            rows = {}
            first = (int(number) + round_number) % len(names)
            for name in names[first:] + names[:first]:
                before, start = self.counters(), time.perf_counter()
                collected = self.runs[name](text)
                seconds = time.perf_counter() - start
                used = [after - earlier for after, earlier in zip(self.counters(), before, strict=True)]
                rows[name] = collected if name == "sail" else comparable(collected)
                if round_number >= 0:
                    times[name].append(seconds)
                    work[name].append(used)
            self._compare(number, rows)
        times["work"] = [work]
        times["vertices"] = [len(self.env.last_job.vertices)] if "penstock" in self.runs else []
        return times

    def _compare(self, number: str, rows: dict[str, list[str]]) -> None:
        """Exit if Penstock's rows differ from Spark's; record the query if Sail's rows differ, as its decimals may."""
        expected = next(system_rows for name, system_rows in rows.items() if name != "sail")
        for name, system_rows in rows.items():
            if system_rows != expected and name != "sail":
                raise SystemExit(f"Q{number}: the rows of {SYSTEMS[name]} differ from Spark's")
            if system_rows != expected and number not in self.differing_queries:
                self.differing_queries.append(number)


def ratios(times: dict[str, dict[str, list[float]]], base: str) -> list[float]:
    """Return how many times as fast as `base` Penstock is, for each query that both ran."""
    return [statistics.median(t[base]) / statistics.median(t["penstock"]) for t in times.values() if t.get(base)]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def table(times: dict[str, dict[str, list[float]]], about: str) -> str:
    systems = [name for name in SYSTEMS if any(t.get(name) for t in times.values())]
    others = [name for name in systems if name != "penstock"]
    measured = [name for name in systems if all(t.get("work") for t in times.values())]
    headers = [
        "query",
        "counted runs",
        "vertices",
        *(f"{SYSTEMS[name]}, s" for name in systems),
        *(f"times as fast as {SYSTEMS[name]}" for name in others),
    ]
    headers += [f"{SYSTEMS[name]}: CPU seconds, MiB shuffled, MiB spilled" for name in measured]
    lines = [about, "", "| " + " | ".join(headers) + " |", "|---" + "|--:" * (len(headers) - 1) + "|"]
    for number, by_name in times.items():
        seconds = {name: statistics.median(by_name[name]) for name in systems if by_name.get(name)}
        cells = [
            f"Q{number}",
            str(len(by_name["penstock"])),
            str(by_name["vertices"][0] if by_name["vertices"] else ""),
        ]
        cells += [f"{seconds[name]:.2f}" if name in seconds else "" for name in systems]
        cells += [f"{seconds[name] / seconds['penstock']:.2f}" if name in seconds else "" for name in others]
        for name in measured:
            runs = by_name["work"][0][name]
            cpu, _, *moved = (statistics.median(column) for column in zip(*runs, strict=True))
            cells.append(f"{cpu:.1f}, {', '.join(f'{mib:.0f}' for mib in moved)}")
        lines.append("| " + " | ".join(cells) + " |")
    complete = [name for name in systems if all(t.get(name) for t in times.values())]
    totals = {name: sum(statistics.median(t[name]) for t in times.values()) for name in complete}
    cells = ["**all**", "", "", *(f"**{totals[name]:.1f}**" if name in complete else "" for name in systems)]
    cells += [f"**{totals[name] / totals['penstock']:.2f}**" if name in complete else "" for name in others]
    for name in measured:
        medians = [
            [statistics.median(column) for column in zip(*t["work"][0][name], strict=True)] for t in times.values()
        ]
        cpu, _, *moved = (sum(column) for column in zip(*medians, strict=True))
        cells.append(f"**{cpu:.0f}, {', '.join(f'{mib:.0f}' for mib in moved)}**")
    lines.append("| " + " | ".join(cells) + " |")
    cells = [
        "**geometric mean**",
        "",
        "",
        *("" for _ in systems),
        *(f"**{geometric_mean(ratios(times, name)):.2f}**" for name in others),
        *("" for _ in measured),
    ]
    lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def chart(times: dict[str, dict[str, list[float]]], title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    speedups = ratios(times, "spark")
    figure, axes = plt.subplots(figsize=(max(7, 0.24 * len(times) + 3), 3.6))
    axes.bar(range(len(speedups)), speedups, color=["#1f7a8c" if ratio >= 1 else "#c8553d" for ratio in speedups])
    axes.axhline(1, color="#333", linewidth=0.8)
    axes.axhline(geometric_mean(speedups), color="#1f7a8c", linewidth=0.8, linestyle="--")
    axes.set_xticks(
        range(len(speedups)), [f"Q{number}" for number in times], rotation=90 if len(speedups) > 30 else 0, fontsize=7
    )
    axes.set_ylabel("times as fast as Spark, AQE")
    axes.set_title(f"{title}: geometric mean {geometric_mean(speedups):.2f}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of parquet files, such as data/tpch-10")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--queries", help="numbers separated by commas (default: all)")
    parser.add_argument("--systems", default=",".join(DEFAULT), help=f"comma-separated: {', '.join(SYSTEMS)}")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of Penstock")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the table and the chart")
    parser.add_argument("--resume", action="store_true", help="keep the measurements of an earlier run")
    arguments = parser.parse_args()
    kind = arguments.data.name.split("-")[0]
    queries = json.loads((HERE.parent / "data" / "queries" / f"{kind}.json").read_text())
    numbers = arguments.queries.split(",") if arguments.queries else sorted(queries, key=int)
    arguments.output.mkdir(parents=True, exist_ok=True)
    saved = arguments.output / f"{arguments.data.name}.json"
    times = json.loads(saved.read_text()) if arguments.resume and saved.exists() else {}
    options = dict(option.split("=", 1) for option in arguments.option)
    bench = Bench(arguments.data, arguments.cores, arguments.memory, arguments.systems.split(","), options)
    for number in numbers:
        if number in times:
            continue
        times[number] = {"measured": [DATE_AND_COMMIT]} | bench.query(number, queries[number], arguments.rounds)
        saved.write_text(json.dumps(times, indent=1))
        print(
            f"Q{number}: " + ", ".join(f"{name} {statistics.median(times[number][name]):.2f} s" for name in bench.runs),
            flush=True,
        )
    times = {number: times[number] for number in sorted(times, key=int)}
    states = ", ".join(
        sorted({state for by_name in times.values() for state in by_name.get("measured", ["an older commit"])})
    )
    rounds = sorted({len(runs) for by_name in times.values() for name, runs in by_name.items() if name in SYSTEMS})
    counted = "1 counted" if rounds == [1] else f"{' or '.join(map(str, rounds))} counted (see each query)"
    about = (
        f"{arguments.data.name}, {states}: a run to warm up and {counted}, medians. "
        f"{versions()}, "
        f"local[{arguments.cores}], {arguments.memory} driver, {platform.machine()} with {os.cpu_count()} cores. "
        f"Penstock: {' '.join(arguments.option) or 'all options at their defaults'}."
    )
    if "tuned" in bench.runs:
        about += (
            " Spark, tuned: "
            + ", ".join(f"{key.removeprefix('spark.sql.')}={value}" for key, value in TUNED.items())
            + "."
        )
    if "statistics" in bench.runs:
        about += " Spark, statistics and CBO: ANALYZE ... FOR ALL COLUMNS, cbo.enabled, cbo.joinReorder.enabled."
    if bench.differing_queries:
        about += f" Sail's rows differ for Q{', Q'.join(bench.differing_queries)}."
    text = table(times, about)
    (arguments.output / f"{arguments.data.name}.md").write_text(text)
    if "spark" in bench.runs:
        chart(times, arguments.data.name, arguments.output / f"{arguments.data.name}.png")
    print(text)


if __name__ == "__main__":
    main()
