"""TPC-H or TPC-DS through Spark with AQE, Spark tuned by hand, Penstock, and Penstock that checks itself, in one process.

Every system runs every query once uncounted, then in each round once, taking turns at going first. Rows are compared on
every run. Medians, a table and a chart go to bench/results; a run that was stopped goes on with --resume.
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
from processes import machine_seconds
from provenance import STATE, versions
from rows import comparable
from sail import VERSION, Sail

HERE = Path(__file__).parent
MIB = 1 << 20
SETTLED = 0.3
"""Seconds after which Spark's status store knows of the tasks that have ended."""
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
"""With statistics of all columns."""


def session(cores: int, memory: str) -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def cost_based(spark: SparkSession, data: Path) -> SparkSession:
    """Return a session whose tables have statistics of all columns, and which orders joins by them."""
    made = spark.newSession()
    made.sql("CREATE DATABASE with_statistics")
    made.catalog.setCurrentDatabase("with_statistics")
    for key, value in COST_BASED.items():
        made.conf.set(key, value)
    for file in sorted(data.glob("*.parquet")):
        made.sql(f"CREATE TABLE {file.stem} USING parquet LOCATION '{file.resolve()}'")
        made.sql(f"ANALYZE TABLE {file.stem} COMPUTE STATISTICS FOR ALL COLUMNS")
    return made


class Bench:
    """The systems over one folder of tables."""

    def __init__(self, data: Path, cores: int, memory: str, systems: list[str], options: dict[str, str]) -> None:
        self.spark = session(cores, memory)
        tuned = self.spark.newSession()
        for key, value in TUNED.items():
            tuned.conf.set(key, value)
        for one in (self.spark, tuned):
            for file in sorted(data.glob("*.parquet")):
                one.read.parquet(str(file)).createOrReplaceTempView(file.stem)
        costs = cost_based(self.spark, data) if "statistics" in systems else self.spark
        self.env = Environment(self.spark, config=options, progress=False)
        native, verified = (
            Environment(self.spark, config=options | {option: True}, progress=False)
            for option in ("execution.native", "execution.verify")
        )
        runs = {
            "spark": lambda text: self.spark.sql(text).collect(),
            "tuned": lambda text: tuned.sql(text).collect(),
            "statistics": lambda text: costs.sql(text).collect(),
            "penstock": lambda text: self.env.collect(self.spark.sql(text)),
            "native": lambda text: native.collect(self.spark.sql(text)),
            "verified": lambda text: verified.collect(self.spark.sql(text)),
        }
        if "sail" in systems:
            runs["sail"] = Sail(data, cores).rows
        self.others: list[str] = []
        self.stages: dict[tuple[int, int], int] = {}
        self.runs = {name: runs[name] for name in systems}

    def done(self) -> tuple[float, float, float, float]:
        """Return the CPU seconds of the machine so far, and the MiB that Spark has read, shuffled and spilled."""
        time.sleep(SETTLED)
        store = self.spark._jsc.sc().statusStore()
        executors = store.executorList(False)
        found = [executors.apply(i) for i in range(executors.size())]
        return (
            machine_seconds(),
            sum(one.totalInputBytes() for one in found) / MIB,
            sum(one.totalShuffleWrite() for one in found) / MIB,
            self._spilled() / MIB,
        )

    def _spilled(self) -> int:
        """Return the bytes that ended stages have spilled to disks. Spark forgets old stages, so each is asked once."""
        jvm = self.spark._jvm
        no_quantiles = self.spark.sparkContext._gateway.new_array(jvm.double, 0)
        none = jvm.java.util.ArrayList()
        stages = self.spark._jsc.sc().statusStore().stageList(none, False, False, no_quantiles, none)
        for place in range(stages.size()):
            stage = stages.apply(place)
            if (stage.stageId(), stage.attemptId()) in self.stages:
                break  # the newest come first
            self.stages[stage.stageId(), stage.attemptId()] = stage.diskBytesSpilled()
        return sum(self.stages.values())

    def query(self, number: str, text: str, rounds: int) -> dict[str, list]:
        """Return the seconds of each system, and how many vertices Penstock made."""
        times: dict[str, list] = {name: [] for name in self.runs}
        work: dict[str, list] = {name: [] for name in self.runs}
        for round_number in range(-1, rounds):  # one round to warm up
            names = list(self.runs)
            found = {}
            turn = (int(number) + round_number) % len(names)
            for name in names[turn:] + names[:turn]:
                before, start = self.done(), time.perf_counter()
                rows = self.runs[name](text)
                seconds = time.perf_counter() - start
                done = [after - earlier for after, earlier in zip(self.done(), before, strict=True)]
                found[name] = rows if name == "sail" else comparable(rows)
                if round_number >= 0:
                    times[name].append(seconds)
                    work[name].append(done)
            self._compare(number, found)
        times["work"] = [work]
        times["vertices"] = [len(self.env.last_job.vertices)] if "penstock" in self.runs else []
        return times

    def _compare(self, number: str, found: dict[str, list[str]]) -> None:
        """Stop if Penstock gave other rows than Spark; another engine may compute other decimals, and that is told."""
        expected = next(rows for name, rows in found.items() if name != "sail")
        for name, rows in found.items():
            if rows != expected and name != "sail":
                raise SystemExit(f"Q{number}: {SYSTEMS[name]} gave other rows")
            if rows != expected and number not in self.others:
                self.others.append(number)


def ratios(times: dict[str, dict[str, list[float]]], base: str) -> list[float]:
    """How many times faster Penstock is, per query that both have run."""
    return [statistics.median(t[base]) / statistics.median(t["penstock"]) for t in times.values() if t.get(base)]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def table(times: dict[str, dict[str, list[float]]], about: str) -> str:
    systems = [name for name in SYSTEMS if any(t.get(name) for t in times.values())]
    others = [name for name in systems if name != "penstock"]
    told = [name for name in systems if all(t.get("work") for t in times.values())]
    heads = [
        "query",
        "counted runs",
        "vertices",
        *(f"{SYSTEMS[name]}, s" for name in systems),
        *(f"times as fast as {SYSTEMS[name]}" for name in others),
    ]
    heads += [f"{SYSTEMS[name]}: CPU seconds, MiB shuffled, MiB spilled" for name in told]
    lines = [about, "", "| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    for number, by_name in times.items():
        seconds = {name: statistics.median(by_name[name]) for name in systems if by_name.get(name)}
        cells = [
            f"Q{number}",
            str(len(by_name["penstock"])),
            str(by_name["vertices"][0] if by_name["vertices"] else ""),
        ]
        cells += [f"{seconds[name]:.2f}" if name in seconds else "" for name in systems]
        cells += [f"{seconds[name] / seconds['penstock']:.2f}" if name in seconds else "" for name in others]
        for name in told:
            runs = by_name["work"][0][name]
            cpu, _, *moved = (statistics.median(column) for column in zip(*runs, strict=True))
            cells.append(f"{cpu:.1f}, {', '.join(f'{mib:.0f}' for mib in moved)}")
        lines.append("| " + " | ".join(cells) + " |")
    whole = [name for name in systems if all(t.get(name) for t in times.values())]
    totals = {name: sum(statistics.median(t[name]) for t in times.values()) for name in whole}
    cells = ["**all**", "", "", *(f"**{totals[name]:.1f}**" if name in whole else "" for name in systems)]
    cells += [f"**{totals[name] / totals['penstock']:.2f}**" if name in whole else "" for name in others]
    for name in told:
        medians = [[statistics.median(one) for one in zip(*t["work"][0][name], strict=True)] for t in times.values()]
        cpu, _, *moved = (sum(column) for column in zip(*medians, strict=True))
        cells.append(f"**{cpu:.0f}, {', '.join(f'{mib:.0f}' for mib in moved)}**")
    lines.append("| " + " | ".join(cells) + " |")
    cells = [
        "**geometric mean**",
        "",
        "",
        *("" for _ in systems),
        *(f"**{geometric_mean(ratios(times, name)):.2f}**" for name in others),
        *("" for _ in told),
    ]
    lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def chart(times: dict[str, dict[str, list[float]]], title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = ratios(times, "spark")
    figure, axes = plt.subplots(figsize=(max(7, 0.24 * len(times) + 3), 3.6))
    axes.bar(range(len(found)), found, color=["#1f7a8c" if ratio >= 1 else "#c8553d" for ratio in found])
    axes.axhline(1, color="#333", linewidth=0.8)
    axes.axhline(geometric_mean(found), color="#1f7a8c", linewidth=0.8, linestyle="--")
    axes.set_xticks(
        range(len(found)), [f"Q{number}" for number in times], rotation=90 if len(found) > 30 else 0, fontsize=7
    )
    axes.set_ylabel("times as fast as Spark, AQE")
    axes.set_title(f"{title}: geometric mean {geometric_mean(found):.2f}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of parquet files, such as data/tpch-10")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--queries", help="numbers separated by commas, all if left out")
    parser.add_argument("--systems", default=",".join(DEFAULT), help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of Penstock")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the table and the chart")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run has measured")
    arguments = parser.parse_args()
    kind = arguments.data.name.split("-")[0]
    queries = json.loads((HERE.parent / "data" / "queries" / f"{kind}.json").read_text())
    numbers = arguments.queries.split(",") if arguments.queries else sorted(queries, key=int)
    arguments.output.mkdir(parents=True, exist_ok=True)
    kept = arguments.output / f"{arguments.data.name}.json"
    times = json.loads(kept.read_text()) if arguments.resume and kept.exists() else {}
    options = dict(option.split("=", 1) for option in arguments.option)
    bench = Bench(arguments.data, arguments.cores, arguments.memory, arguments.systems.split(","), options)
    for number in numbers:
        if number in times:
            continue
        times[number] = {"measured": [STATE]} | bench.query(number, queries[number], arguments.rounds)
        kept.write_text(json.dumps(times, indent=1))
        print(
            f"Q{number}: " + ", ".join(f"{name} {statistics.median(times[number][name]):.2f} s" for name in bench.runs),
            flush=True,
        )
    times = {number: times[number] for number in sorted(times, key=int)}
    states = ", ".join(
        sorted({state for by_name in times.values() for state in by_name.get("measured", ["an older commit"])})
    )
    rounds = sorted({len(one) for by_name in times.values() for name, one in by_name.items() if name in SYSTEMS})
    counted = "1 counted" if rounds == [1] else f"{' or '.join(map(str, rounds))} counted (as told for each query)"
    about = (
        f"{arguments.data.name}, {states}: one run to warm up and {counted}, medians. "
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
    if bench.others:
        about += f" Sail gave other rows for Q{', Q'.join(bench.others)}."
    text = table(times, about)
    (arguments.output / f"{arguments.data.name}.md").write_text(text)
    if "spark" in bench.runs:
        chart(times, arguments.data.name, arguments.output / f"{arguments.data.name}.png")
    print(text)


if __name__ == "__main__":
    main()
