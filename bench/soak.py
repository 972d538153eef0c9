"""Run thousands of jobs in an Environment, and record the resources that may grow.

The resources are memory, threads, classes, sessions, files and plan hints. The kinds of jobs alternate: an aggregate,
an aggregate with a plan hint for its parallelism, a small query that Spark runs, a join, a window, a write of files, a
rebalance, a failing job, a cancelled job. The resources are read after each block of jobs and a garbage collection. A
table and a chart are written to bench/results, with the linear trend of the second half.
"""

import argparse
import gc
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable


import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from penstock.connectors import FileSink
from penstock.errors import PenstockError
from penstock.spark.plans import dataframes
from penstock.spark.run import barrier
from provenance import DATE_AND_COMMIT, versions

HERE = Path(__file__).parent
MIB = 1 << 20


@dataclass(frozen=True)
class Reading:
    """Resources after a number of jobs; memory in MiB."""

    jobs: int
    ms_per_job: float
    python_mib: float
    heap_mib: float
    classes: int
    sessions: int
    threads: int
    jvm_threads: int
    plan_hints: int
    files: int


class Soak:
    """A session, the kinds of jobs, and the reading of resources."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.log.level", "OFF")
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.cleaner.periodicGC.interval", "1min")
            # Spark retains 1000 of each for its UI by default; lower limits are reached earlier.
            .config("spark.ui.retainedJobs", "200")
            .config("spark.ui.retainedStages", "200")
            .config("spark.ui.retainedTasks", "2000")
            .config("spark.sql.ui.retainedExecutions", "200")
            .getOrCreate()
        )
        self.small = Environment(self.spark, progress=False)
        self.env = Environment(self.spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
        path = str(folder / "facts")
        self.spark.range(0, 20_000, 1, 2).selectExpr("id % 97 as k", "id as v").write.parquet(path)
        self.facts = self.spark.read.parquet(path)
        frequent: list[Callable[[], object]] = [
            *[lambda: self.small.collect(self._groups())] * 6,
            lambda: self.env.collect(self._groups()),
            lambda: self.env.collect(penstock.with_parallelism(self._groups(), 3)),
        ]
        rare: list[Callable[[], object]] = [
            lambda: self.env.collect(self.facts.join(self._groups(), "k").agg(F.sum("v"))),
            lambda: self.env.count(
                self.facts.selectExpr("rank() over (partition by k order by v) as r").where("r = 1")
            ),
            self._write,
            lambda: self.env.count(self._rebalanced(adaptive=False)),
            lambda: self.env.count(self._rebalanced(adaptive=True)),
            self._fail,
            self._cancel,
        ]
        self.kinds = [kind for rare_kind in rare for kind in (*frequent, rare_kind)]

    def _groups(self) -> DataFrame:
        return self.facts.groupBy("k").agg(F.sum("v").alias("s"))

    def _rebalanced(self, *, adaptive: bool) -> DataFrame:
        facts = self.facts.where("k < 3")
        return penstock.rebalance(facts, 2, adaptive=adaptive).map_in_arrow(lambda rows: rows, facts.schema)

    def _write(self) -> None:
        self.env.write(self._groups(), FileSink(str(self.folder / "out"), mode="overwrite"))
        self.env.execute()

    def _fail(self) -> None:
        try:
            self.env.collect(self._groups().select(F.raise_error(F.lit("on purpose"))))
        except PenstockError:
            return
        raise AssertionError("the job did not fail")

    def _cancel(self) -> None:
        self.env.write(self._groups(), FileSink(str(self.folder / "never"), mode="overwrite"))
        job = self.env.execute_async()
        job.cancel()
        try:
            job.wait(30)
        except PenstockError:
            return

    def block(self, first: int, count: int) -> Reading:
        """Run `count` jobs, and read the resources afterwards."""
        start = time.perf_counter()
        for number in range(first, first + count):
            self.kinds[number % len(self.kinds)]()
        seconds = time.perf_counter() - start
        beans = self.spark._jvm.java.lang.management.ManagementFactory
        for _ in range(3):  # objects that Spark's cleaner releases are collected by the next round
            gc.collect()
            objects = self.objects()
            time.sleep(0.5)
        used = beans.getMemoryMXBean().getHeapMemoryUsage().getUsed()
        return Reading(
            jobs=first + count,
            ms_per_job=round(1000 * seconds / count, 1),
            python_mib=round(_resident_bytes() / MIB, 1),
            heap_mib=round(used / MIB, 1),
            classes=int(beans.getClassLoadingMXBean().getLoadedClassCount()),
            sessions=objects.get("org.apache.spark.sql.classic.SparkSession", 0),
            threads=threading.active_count(),
            jvm_threads=int(beans.getThreadMXBean().getThreadCount()),
            plan_hints=len(dataframes._HINTS) + len(barrier._ATTACHED),
            files=sum(len(files) for _, _, files in os.walk(self.folder)),
        )

    def objects(self) -> dict[str, int]:
        """Collect the garbage of the driver's JVM; return the number of remaining objects of each class."""
        jvm, gateway = self.spark._jvm, self.spark.sparkContext._gateway

        def array(kind: str, *items: object) -> object:
            java_array = gateway.new_array(getattr(jvm.java.lang, kind), len(items))
            for index, item in enumerate(items):
                java_array[index] = item
            return java_array

        for_name = jvm.java.lang.Class.forName
        names = "javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", "[Ljava.lang.String;"
        # The method comes from the interface, as the class of the server is not public.
        invoke = for_name("javax.management.MBeanServer").getMethod("invoke", array("Class", *map(for_name, names)))
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        bean = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
        options = array("Object", array("String")), array("String", "[Ljava.lang.String;")
        histogram = invoke.invoke(server, array("Object", bean, "gcClassHistogram", *options))
        lines = [line.split() for line in str(histogram).splitlines()]
        return {line[3]: int(line[1]) for line in lines if len(line) >= 4 and line[0].endswith(":")}


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def table(readings: list[Reading]) -> str:
    names = [field.name.replace("_", " ") for field in fields(Reading)]
    rows = ["| " + " | ".join(map(str, astuple(reading))) + " |" for reading in readings]
    return "\n".join(["| " + " | ".join(names) + " |", "|" + "--:|" * len(names), *rows])


def growth(readings: list[Reading]) -> dict[str, float]:
    """Return the growth of each resource over the second half by a linear fit, relative to its mean."""
    half = readings[len(readings) // 2 :]
    jobs = np.array([reading.jobs for reading in half], dtype=float)
    growths = {}
    for field in fields(Reading)[1:]:
        values = np.array([getattr(reading, field.name) for reading in half], dtype=float)
        slope = np.polyfit(jobs, values, 1)[0] if len(half) > 1 else 0.0
        growths[field.name] = float(slope * (jobs[-1] - jobs[0]) / max(values.mean(), 1.0))
    return growths


def chart(readings: list[Reading], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = [field.name for field in fields(Reading)][1:]
    figure, panels = plt.subplots(3, 3, figsize=(14, 9))
    jobs = [reading.jobs for reading in readings]
    for name, axes in zip(shown, panels.flat, strict=True):
        axes.plot(jobs, [getattr(reading, name) for reading in readings], color="#2463eb")
        axes.set_title(name.replace("_", " "))
        axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--block", type=int, default=250, help="jobs between two readings")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the table and the chart")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    readings: list[Reading] = []
    try:
        soak = Soak(folder)
        for first in range(0, arguments.jobs, arguments.block):
            readings.append(soak.block(first, arguments.block))
            print(readings[-1], flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    chart(readings, arguments.output / "soak.png")
    environment = f"{DATE_AND_COMMIT}, {versions()}, local[2], 2g driver, {platform.machine()}"
    growths = ", ".join(f"{name.replace('_', ' ')} {ratio:+.1%}" for name, ratio in growth(readings).items())
    text = f"# Thousands of jobs in one process\n\n`bench/soak.py --jobs {arguments.jobs}`: {environment}.\n\n{table(readings)}\n\n"
    text += f"From the first to the last job of the second half: {growths}.\n"
    (arguments.output / "soak.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
