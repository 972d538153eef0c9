"""Estimate TPC-H on 100 and 1 000 executors: locally measured stages are replayed on a model of a cluster.

Each query runs on Spark with AQE and on Penstock, with many tasks per stage as on a cluster. Spark measures the
stages. The model (bench/cluster_model.py) has the costs of the network and of starting tasks. A table is written to
bench/results. It shows what fewer shuffled bytes would save on a cluster; it is not a measurement.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from cluster_model import Cluster, Stage, seconds, with_bytes_read
from penstock import Environment
from provenance import DATE_AND_COMMIT, versions
from rows import comparable

HERE = Path(__file__).parent
MIB = 1 << 20
SYSTEMS = {"spark": "Spark, AQE", "penstock": "Penstock", "native": "Penstock with execution.native"}
MANY_TASKS = {"execution.batch.adaptive.whole-query-threshold": 0}
"""Options with which no query runs in a single task."""
SETTLE_SECONDS = 0.5
"""Seconds until Spark's status store contains the stages that have ended."""


class Recorder:
    """Runs queries and reads the metrics of their stages from Spark."""

    def __init__(self, data: Path, cores: int, memory: str) -> None:
        builder = SparkSession.builder.master(f"local[{cores}]").config("spark.driver.memory", memory)
        builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        self.spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        for file in sorted(data.glob("*.parquet")):
            self.spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
        plain = Environment(self.spark, config=MANY_TASKS | {"execution.native": False}, progress=False)
        native = Environment(self.spark, config=MANY_TASKS | {"execution.native": True}, progress=False)
        self.runs = {
            "spark": lambda text: self.spark.sql(text).collect(),
            "penstock": lambda text: plain.collect(self.spark.sql(text)),
            "native": lambda text: native.collect(self.spark.sql(text)),
        }
        self._read_stages: set[tuple[int, int]] = set()

    def stages(self, system: str, text: str) -> tuple[list[Stage], list[str]]:
        """Run a query twice; return the stages and the rows of the second run."""
        self.runs[system](text)
        self._new_stages()
        began = time.time()
        rows = self.runs[system](text)
        stages = []
        for stage in self._new_stages():
            times = [stage.submissionTime().get().getTime(), stage.completionTime().get().getTime()]
            start, end = (milliseconds / 1000 - began for milliseconds in times)
            work = stage.executorRunTime() / 1000
            stages.append(
                Stage(start, end, work, stage.inputBytes(), stage.shuffleReadBytes(), stage.numCompleteTasks())
            )
        return stages, comparable(rows)

    def _new_stages(self) -> list:
        """Return Spark's metrics of the stages that have ended since the last call."""
        time.sleep(SETTLE_SECONDS)
        jvm = self.spark._jvm
        no_quantiles = self.spark.sparkContext._gateway.new_array(jvm.double, 0)
        none = jvm.java.util.ArrayList()
        stages = self.spark._jsc.sc().statusStore().stageList(none, False, False, no_quantiles, none)
        finished = []
        for index in range(stages.size()):
            stage = stages.apply(index)
            key = (stage.stageId(), stage.attemptId())
            if key in self._read_stages:
                break  # the newest come first
            self._read_stages.add(key)
            if stage.completionTime().isDefined() and stage.numCompleteTasks():
                finished.append(stage)
        return finished


def table(stages: dict[str, dict[str, list[Stage]]], executors: list[int], measured_cores: int, about: str) -> str:
    systems = [name for name in SYSTEMS if all(name in by_name for by_name in stages.values())]
    headers = ["query", *(f"{SYSTEMS[name]}: stages, MiB shuffled" for name in systems)]
    headers += [f"{SYSTEMS[name]} on {number:,} executors, s" for number in executors for name in systems]
    lines = [about, "", "| " + " | ".join(headers) + " |", "|---" + "|--:" * (len(headers) - 1) + "|"]
    totals = [0.0] * (len(executors) * len(systems))
    ratios: list[list[float]] = [[] for _ in totals]
    for number, by_name in stages.items():
        cells = [f"Q{number}"]
        cells += [
            f"{len(by_name[name])}, {sum(stage.fetched for stage in by_name[name]) / MIB:.0f}" for name in systems
        ]
        times = []
        for count in executors:
            cluster = Cluster(count)
            growth = cluster.all_cores / measured_cores
            times += [seconds(by_name[name], cluster, growth) for name in systems]
        for column, duration in enumerate(times):
            totals[column] += duration
            ratios[column].append(times[column - column % len(systems)] / duration)
        lines.append("| " + " | ".join([*cells, *(f"{duration:.1f}" for duration in times)]) + " |")
    empty = [""] * len(systems)
    lines.append("| " + " | ".join(["**all**", *empty, *(f"**{total:.0f}**" for total in totals)]) + " |")
    means = [math.exp(sum(map(math.log, column)) / len(column)) for column in ratios]
    name = "**geometric mean, against Spark**"
    lines.append("| " + " | ".join([name, *empty, *(f"**{mean:.2f}**" for mean in means)]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of parquet files, such as data/tpch-10")
    parser.add_argument("--executors", default="100,1000")
    parser.add_argument("--queries", help="numbers separated by commas (default: all)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"comma-separated: {', '.join(SYSTEMS)}")
    parser.add_argument("--cores", type=int, default=2, help="cores of the measured runs")
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the table")
    arguments = parser.parse_args()
    kind = arguments.data.name.split("-")[0]
    queries = json.loads((HERE.parent / "data" / "queries" / f"{kind}.json").read_text())
    numbers = arguments.queries.split(",") if arguments.queries else sorted(queries, key=int)
    recorder = Recorder(arguments.data, arguments.cores, arguments.memory)
    stages: dict[str, dict[str, list[Stage]]] = {}
    for number in numbers:
        rows = {}
        stages[number] = {}
        for name in arguments.systems.split(","):
            stages[number][name], rows[name] = recorder.stages(name, queries[number])
        if {"penstock", "native"} <= stages[number].keys():
            read = sum(stage.read for stage in stages[number]["penstock"])
            stages[number]["native"] = with_bytes_read(stages[number]["native"], read)
        if any(system_rows != next(iter(rows.values())) for system_rows in rows.values()):
            raise SystemExit(f"Q{number}: the systems returned different rows")
        print(
            f"Q{number}: " + ", ".join(f"{name} {len(measured)} stages" for name, measured in stages[number].items()),
            flush=True,
        )
    executors = [int(count) for count in arguments.executors.split(",")]
    model = Cluster(executors[0])
    about = (
        f"{arguments.data.name}, {DATE_AND_COMMIT}: a simulation. {versions()}. Stages measured on local[{arguments.cores}] are replayed on executors of "
        f"{model.cores} cores, with data that grows with the number of cores. An executor receives {model.bandwidth / 1e9:g} GB per second; "
        f"starting a task takes {model.launch * 1000:g} ms of the driver, starting a stage {model.start:g} s, reading a shuffle block {model.fetch * 1e6:g} µs of a core. "
        f"Broadcasts, stragglers and disks are not modelled. No query of Penstock runs in a single task here."
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = table(stages, executors, arguments.cores, about)
    (arguments.output / f"simulation-{arguments.data.name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
