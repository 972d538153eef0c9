"""What TPC-H would take on 100 and 1 000 executors: stages that were measured here are replayed on a model of a cluster.

Each query runs on Spark with AQE and on Penstock, whose steps have many tasks, as on a cluster. What its stages did is
read from Spark. The model (bench/cluster_model.py) states what a network and the start of a task cost. A table goes to
bench/results. It shows what bytes that are not shuffled mean there; it is no measurement.
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
from provenance import STATE, versions
from rows import comparable

HERE = Path(__file__).parent
MIB = 1 << 20
SYSTEMS = {"spark": "Spark, AQE", "penstock": "Penstock", "native": "Penstock with execution.native"}
MANY_TASKS = {"execution.batch.adaptive.whole-query-threshold": 0}
"""No query is computed by one task."""
SETTLED = 0.5
"""Seconds after which Spark's status store knows of the stages that have ended."""


class Recorder:
    """Runs queries, and reads from Spark what their stages did."""

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
        self._known: set[tuple[int, int]] = set()

    def stages(self, system: str, text: str) -> tuple[list[Stage], list[str]]:
        """Run a query twice; return what its stages did in the second run, and its rows."""
        self.runs[system](text)
        self._ended()
        began = time.time()
        rows = self.runs[system](text)
        found = []
        for stage in self._ended():
            times = [stage.submissionTime().get().getTime(), stage.completionTime().get().getTime()]
            begun, ended = (one / 1000 - began for one in times)
            work = stage.executorRunTime() / 1000
            found.append(
                Stage(begun, ended, work, stage.inputBytes(), stage.shuffleReadBytes(), stage.numCompleteTasks())
            )
        return found, comparable(rows)

    def _ended(self) -> list:
        """Return what Spark tells of the stages that have ended since this was asked."""
        time.sleep(SETTLED)
        jvm = self.spark._jvm
        no_quantiles = self.spark.sparkContext._gateway.new_array(jvm.double, 0)
        none = jvm.java.util.ArrayList()
        stages = self.spark._jsc.sc().statusStore().stageList(none, False, False, no_quantiles, none)
        found = []
        for place in range(stages.size()):
            stage = stages.apply(place)
            key = (stage.stageId(), stage.attemptId())
            if key in self._known:
                break  # the newest come first
            self._known.add(key)
            if stage.completionTime().isDefined() and stage.numCompleteTasks():
                found.append(stage)
        return found


def table(found: dict[str, dict[str, list[Stage]]], executors: list[int], measured_cores: int, about: str) -> str:
    systems = [name for name in SYSTEMS if all(name in by_name for by_name in found.values())]
    heads = ["query", *(f"{SYSTEMS[name]}: stages, MiB shuffled" for name in systems)]
    heads += [f"{SYSTEMS[name]} on {number:,} executors, s" for number in executors for name in systems]
    lines = [about, "", "| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    totals = [0.0] * (len(executors) * len(systems))
    ratios: list[list[float]] = [[] for _ in totals]
    for number, by_name in found.items():
        cells = [f"Q{number}"]
        cells += [f"{len(by_name[name])}, {sum(one.fetched for one in by_name[name]) / MIB:.0f}" for name in systems]
        times = []
        for count in executors:
            cluster = Cluster(count)
            growth = cluster.all_cores / measured_cores
            times += [seconds(by_name[name], cluster, growth) for name in systems]
        for place, one in enumerate(times):
            totals[place] += one
            ratios[place].append(times[place - place % len(systems)] / one)
        lines.append("| " + " | ".join([*cells, *(f"{one:.1f}" for one in times)]) + " |")
    empty = [""] * len(systems)
    lines.append("| " + " | ".join(["**all**", *empty, *(f"**{one:.0f}**" for one in totals)]) + " |")
    means = [math.exp(sum(map(math.log, one)) / len(one)) for one in ratios]
    name = "**geometric mean, against Spark**"
    lines.append("| " + " | ".join([name, *empty, *(f"**{one:.2f}**" for one in means)]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of parquet files, such as data/tpch-10")
    parser.add_argument("--executors", default="100,1000")
    parser.add_argument("--queries", help="numbers separated by commas, all if left out")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--cores", type=int, default=2, help="where the stages are measured")
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the table")
    arguments = parser.parse_args()
    kind = arguments.data.name.split("-")[0]
    queries = json.loads((HERE.parent / "data" / "queries" / f"{kind}.json").read_text())
    numbers = arguments.queries.split(",") if arguments.queries else sorted(queries, key=int)
    recorder = Recorder(arguments.data, arguments.cores, arguments.memory)
    found: dict[str, dict[str, list[Stage]]] = {}
    for number in numbers:
        rows = {}
        found[number] = {}
        for name in arguments.systems.split(","):
            found[number][name], rows[name] = recorder.stages(name, queries[number])
        if {"penstock", "native"} <= found[number].keys():
            read = sum(one.read for one in found[number]["penstock"])
            found[number]["native"] = with_bytes_read(found[number]["native"], read)
        if any(one != next(iter(rows.values())) for one in rows.values()):
            raise SystemExit(f"Q{number}: the systems gave different rows")
        print(
            f"Q{number}: " + ", ".join(f"{name} {len(one)} stages" for name, one in found[number].items()), flush=True
        )
    executors = [int(one) for one in arguments.executors.split(",")]
    model = Cluster(executors[0])
    about = (
        f"{arguments.data.name}, {STATE}: a simulation. {versions()}. Stages measured on local[{arguments.cores}] are replayed on executors of "
        f"{model.cores} cores, with as much more data as there are more cores. An executor receives {model.bandwidth / 1e9:g} GB in a second; "
        f"to start a task costs the driver {model.launch * 1000:g} ms, a stage {model.start:g} s, a block of a shuffle {model.fetch * 1e6:g} µs of a core. "
        f"Broadcasts, stragglers and disks are not modelled. Penstock's steps have many tasks here: no query is computed by one."
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = table(found, executors, arguments.cores, about)
    (arguments.output / f"simulation-{arguments.data.name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
