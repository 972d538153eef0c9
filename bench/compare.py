"""Compare TPC-H or TPC-DS on Spark with AQE, hand-tuned Spark, Penstock and other systems, in a single process.

Every system runs every query once to warm up, then once per round; the first system rotates. Every run compares the
rows. Medians, a table and a chart are written to bench/results; --resume continues an interrupted run.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession

from comparison_table import SYSTEMS, Times, chart, label, table
from duckdb_alone import DuckDb
from penstock import Environment
from processes import machine_cpu_seconds
from provenance import DATE_AND_COMMIT, versions
from rows import are_equal, comparable
from sail import Sail

HERE = Path(__file__).parent
MIB = 1 << 20
SETTLE_SECONDS = 0.3
"""Seconds until Spark's status store contains the tasks that have ended."""
DEFAULT = ("spark", "tuned", "penstock")
TUNED = {
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "512m",
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "100m",
}
COST_BASED = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
"""Settings of the session whose tables have statistics of all columns."""
PENSTOCK_OPTIONS: dict[str, dict[str, bool]] = {
    "steps": {"execution.native": False},
    "penstock": {},
    "native": {"execution.native": True},
    "verified": {"execution.verify": True},
}
"""The options of each system that is Penstock."""
OTHER_ENGINES = ("sail", "duckdb")
"""Systems whose rows may differ from Spark's, as their decimals may."""


@dataclass(frozen=True)
class Query:
    """A query.

    Parameters
    ----------
    spark
        The query as SQL, or a function from the session to a DataFrame.
    sql
        The query for systems other than Spark and Penstock, which skip it if it is None.
    """

    spark: str | Callable[[SparkSession], DataFrame]
    sql: str | None = None

    def dataframe(self, session: SparkSession) -> DataFrame:
        return session.sql(self.spark) if isinstance(self.spark, str) else self.spark(session)


def session(cores: int, memory: str) -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.sql.session.timeZone", "UTC")
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

    def __init__(self, data: Path, cores: int, memory: str, systems: Sequence[str], options: Mapping[str, Any]) -> None:
        self.spark = session(cores, memory)
        self.machine = f"local[{cores}], {memory} driver, {platform.machine()} with {os.cpu_count()} cores"
        self.options = options
        sessions = {"spark": self.spark, "tuned": self.spark.newSession()}
        for key, value in TUNED.items():
            sessions["tuned"].conf.set(key, value)
        for spark in sessions.values():
            for file in sorted(data.glob("*.parquet")):
                spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
        if "statistics" in systems:
            sessions["statistics"] = cost_based_session(self.spark, data)
        self.environments = {
            name: Environment(self.spark, config={**options, **PENSTOCK_OPTIONS[name]}, progress=False)
            for name in systems
            if name in PENSTOCK_OPTIONS
        }
        runs: dict[str, Callable[[Query], list]] = {
            name: partial(lambda spark, query: query.dataframe(spark).collect(), spark)
            for name, spark in sessions.items()
        }
        runs |= {
            name: partial(lambda env, query: env.collect(query.dataframe(self.spark)), env)
            for name, env in self.environments.items()
        }
        engines = {"sail": Sail, "duckdb": DuckDb}
        for name in set(systems) & set(engines):
            runs[name] = partial(lambda engine, query: engine.rows(query.sql), engines[name](data, cores))
        self.stages: dict[tuple[int, int], tuple[int, int]] = {}
        self.runs = {name: runs[name] for name in systems}

    def counters(self) -> tuple[float, ...]:
        """Return the totals so far.

        They are the CPU seconds of the machine, the MiB that Spark has read, shuffled and spilled, and the rows that
        its tasks have read from files and from shuffles.
        """
        time.sleep(SETTLE_SECONDS)
        store = self.spark._jsc.sc().statusStore()
        executor_list = store.executorList(False)
        executors = [executor_list.apply(i) for i in range(executor_list.size())]
        spilled, rows = self._stage_totals()
        return (
            machine_cpu_seconds(),
            sum(executor.totalInputBytes() for executor in executors) / MIB,
            sum(executor.totalShuffleWrite() for executor in executors) / MIB,
            spilled / MIB,
            rows,
        )

    def _stage_totals(self) -> tuple[int, int]:
        """Return the bytes spilled to disk and the rows read by finished stages, including those that Spark removed."""
        jvm = self.spark._jvm
        no_quantiles = self.spark.sparkContext._gateway.new_array(jvm.double, 0)
        none = jvm.java.util.ArrayList()
        stages = self.spark._jsc.sc().statusStore().stageList(none, False, False, no_quantiles, none)
        for index in range(stages.size()):
            stage = stages.apply(index)
            if (stage.stageId(), stage.attemptId()) in self.stages:
                break  # the newest come first
            rows = stage.inputRecords() + stage.shuffleReadRecords()
            self.stages[stage.stageId(), stage.attemptId()] = stage.diskBytesSpilled(), rows
        spilled, rows = zip((0, 0), *self.stages.values(), strict=True)
        return sum(spilled), sum(rows)

    def query(self, name: str, query: Query, rounds: int, position: int) -> dict[str, list]:
        """Run a query on each system; `position` and the number of the round determine which system is first.

        Returns the seconds and counters of each system, the other engines whose rows differ, the number of Penstock's
        vertices, and its decisions about native execution.
        """
        systems = [system for system in self.runs if query.sql is not None or system not in OTHER_ENGINES]
        times: dict[str, list] = {system: [] for system in systems}
        work: dict[str, list] = {system: [] for system in systems}
        differing: set[str] = set()
        for round_number in range(-1, rounds):  # the first round warms up
            rows = {}
            first = (position + round_number) % len(systems)
            for system in systems[first:] + systems[:first]:
                before, start = self.counters(), time.perf_counter()
                rows[system] = self.runs[system](query)
                seconds = time.perf_counter() - start
                used = [after - earlier for after, earlier in zip(self.counters(), before, strict=True)]
                if round_number >= 0:
                    times[system].append(seconds)
                    work[system].append(used)
            differing |= differing_engines(name, rows)
        times["work"] = [work]
        times["differing"] = sorted(differing)
        job = self.environments["penstock"].last_job if "penstock" in systems else None
        times["vertices"] = [] if job is None else [len(job.vertices)]
        times["reason"] = [] if job is None else [native_decisions(job)]
        return times

    def measure(self, queries: Mapping[str, Query], rounds: int, saved: Path, *, resume: bool) -> dict[str, dict]:
        """Run each query and save its times; with `resume`, run only queries of which no times are saved."""
        saved.parent.mkdir(parents=True, exist_ok=True)
        times = json.loads(saved.read_text()) if resume and saved.exists() else {}
        for position, (name, query) in enumerate(queries.items()):
            if name in times:
                continue
            times[name] = {"measured": [DATE_AND_COMMIT]} | self.query(name, query, rounds, position)
            saved.write_text(json.dumps(times, indent=1))
            medians = {system: statistics.median(times[name][system]) for system in self.runs if system in times[name]}
            print(
                f"{label(name)}: " + ", ".join(f"{system} {median:.2f} s" for system, median in medians.items()),
                flush=True,
            )
        return times

    def write(self, folder: Path, name: str, data: str, times: Times, render: Callable[[Times, str], str]) -> str:
        """Write a page, which `render` returns for the times and the text above a table; return it."""
        text = render(times, self.about(data, times))
        (folder / f"{name}.md").write_text(text)
        return text

    def about(self, data: str, times: Times) -> str:
        """Return the text above a table: the date and commit, the runs, the versions, the machine and the options."""
        states = {state for by_name in times.values() for state in by_name.get("measured", ["an older commit"])}
        rounds = sorted({len(runs) for by_name in times.values() for name, runs in by_name.items() if name in SYSTEMS})
        counted = "1 counted" if rounds == [1] else f"{' or '.join(map(str, rounds))} counted (see each query)"
        options = " ".join(f"{key}={value}" for key, value in self.options.items()) or "all options at their defaults"
        text = (
            f"{data}, {', '.join(sorted(states))}: a run to warm up and {counted}, medians. "
            f"{versions()}, {self.machine}. Penstock: {options}."
        )
        if "tuned" in self.runs:
            settings = ", ".join(f"{key.removeprefix('spark.sql.')}={value}" for key, value in TUNED.items())
            text += f" Spark, tuned: {settings}."
        if "statistics" in self.runs:
            text += " Spark, statistics and CBO: ANALYZE ... FOR ALL COLUMNS, cbo.enabled, cbo.joinReorder.enabled."
        for system in OTHER_ENGINES:
            names = [label(name) for name, by_name in times.items() if system in by_name.get("differing", ())]
            text += f" The rows of {SYSTEMS[system]} differ for {', '.join(names)}." if names else ""
        return text


def differing_engines(name: str, rows: Mapping[str, list]) -> set[str]:
    """Return the other engines whose rows differ from Spark's; exit if Penstock's differ."""
    expected = next(system_rows for system, system_rows in rows.items() if system not in OTHER_ENGINES)
    differing = {
        system
        for system, system_rows in rows.items()
        if not (system_rows == comparable(expected) if system == "sail" else are_equal(system_rows, expected))
    }
    for system in differing.difference(OTHER_ENGINES):
        raise SystemExit(f"{label(name)}: the rows of {SYSTEMS[system]} differ from Spark's")
    return differing


def native_decisions(job: Any) -> str:
    """Return what the decisions of a job say about native execution, in sentences."""
    sentences = [
        str(decision.outcome.get("because", decision))
        for decision in job.decisions
        if decision.kind in {"native", "whole query"}
    ]
    return "; ".join(dict.fromkeys(sentences))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all comparisons have."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of Penstock")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the table and the chart")
    parser.add_argument("--resume", action="store_true", help="keep the measurements of an earlier run")


def bench_of(arguments: argparse.Namespace, data: Path, systems: Sequence[str]) -> Bench:
    """Return the systems over a folder of tables, with the cores, memory and options of the arguments."""
    options = dict(option.split("=", 1) for option in arguments.option)
    return Bench(data, arguments.cores, arguments.memory, systems, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of parquet files, such as data/tpch-10")
    parser.add_argument("--queries", help="numbers separated by commas (default: all)")
    parser.add_argument("--systems", default=",".join(DEFAULT), help=f"comma-separated: {', '.join(SYSTEMS)}")
    add_arguments(parser)
    arguments = parser.parse_args()
    name = arguments.data.name
    texts = json.loads((HERE.parent / "data" / "queries" / f"{name.split('-')[0]}.json").read_text())
    numbers = arguments.queries.split(",") if arguments.queries else sorted(texts, key=int)
    bench = bench_of(arguments, arguments.data, arguments.systems.split(","))
    queries = {number: Query(texts[number], texts[number]) for number in numbers}
    times = bench.measure(queries, arguments.rounds, arguments.output / f"{name}.json", resume=arguments.resume)
    times = {number: times[number] for number in sorted(times, key=int)}
    text = bench.write(arguments.output, name, name, times, table)
    if "spark" in bench.runs:
        chart(times, name, arguments.output / f"{name}.png")
    print(text)


if __name__ == "__main__":
    main()
