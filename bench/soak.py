"""Thousands of jobs in one Environment: what grows with them? Memory, threads, classes, sessions, files and plan hints are counted.

Jobs take turns: groups, a parallelism given by a plan hint, a small one that Spark runs whole, a join, a window, a write of files, a
rebalance, one that fails, one that is cancelled. After every block the driver's heap is collected and looked at. A table and a chart go
to bench/results, with how far a straight line through the second half climbs or falls there.
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
from dataclasses import astuple, dataclass, fields
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from penstock.connectors import FileSink
from penstock.errors import PenstockError
from penstock.spark import barrier, dataframes
from provenance import STATE, versions

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
MIB = 1 << 20


@dataclass(frozen=True)
class Reading:
    """What there is after so many jobs; memory in MiB."""

    jobs: int
    ms_per_job: float
    python_mib: float
    heap_mib: float
    classes: int
    sessions: int
    threads: int
    jvm_threads: int
    marks: int
    files: int


class Soak:
    """The session, its jobs, and what is counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.log.level", "OFF")
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.cleaner.periodicGC.interval", "1min")
            # What Spark keeps for its own page, 1000 of each by default: so the level is reached soon.
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
        often: list[Callable[[], object]] = [
            *[lambda: self.small.collect(self._groups())] * 6,
            lambda: self.env.collect(self._groups()),
            lambda: self.env.collect(penstock.with_parallelism(self._groups(), 3)),
        ]
        seldom: list[Callable[[], object]] = [
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
        self.kinds = [kind for one in seldom for kind in (*often, one)]

    def _groups(self) -> DataFrame:
        return self.facts.groupBy("k").agg(F.sum("v").alias("s"))

    def _rebalanced(self, *, adaptive: bool) -> DataFrame:
        few = self.facts.where("k < 3")
        return penstock.rebalance(few, 2, adaptive=adaptive).map_in_arrow(lambda rows: rows, few.schema)

    def _write(self) -> None:
        self.env.write(self._groups(), FileSink(str(self.folder / "out"), mode="overwrite"))
        self.env.execute()

    def _fail(self) -> None:
        try:
            self.env.collect(self._groups().select(F.raise_error(F.lit("on purpose"))))
        except PenstockError:
            return
        raise AssertionError("it did not fail")

    def _cancel(self) -> None:
        self.env.write(self._groups(), FileSink(str(self.folder / "never"), mode="overwrite"))
        job = self.env.execute_async()
        job.cancel()
        try:
            job.wait(30)
        except PenstockError:
            return

    def block(self, first: int, count: int) -> Reading:
        """Run so many jobs, and look at what there is."""
        start = time.perf_counter()
        for number in range(first, first + count):
            self.kinds[number % len(self.kinds)]()
        seconds = time.perf_counter() - start
        beans = self.spark._jvm.java.lang.management.ManagementFactory
        for _ in range(3):  # what Spark's cleaner frees once is collected the next time
            gc.collect()
            objects = self.objects()
            time.sleep(0.5)
        used = beans.getMemoryMXBean().getHeapMemoryUsage().getUsed()
        return Reading(
            jobs=first + count,
            ms_per_job=round(1000 * seconds / count, 1),
            python_mib=round(_resident() / MIB, 1),
            heap_mib=round(used / MIB, 1),
            classes=int(beans.getClassLoadingMXBean().getLoadedClassCount()),
            sessions=objects.get("org.apache.spark.sql.classic.SparkSession", 0),
            threads=threading.active_count(),
            jvm_threads=int(beans.getThreadMXBean().getThreadCount()),
            marks=len(dataframes._HINTS) + len(barrier._FUNCTIONS),
            files=sum(len(files) for _, _, files in os.walk(self.folder)),
        )

    def objects(self) -> dict[str, int]:
        """Collect the driver's garbage; return how many objects of each class are left."""
        jvm, gateway = self.spark._jvm, self.spark.sparkContext._gateway

        def array(kind: str, *items: object) -> object:
            made = gateway.new_array(getattr(jvm.java.lang, kind), len(items))
            for place, item in enumerate(items):
                made[place] = item
            return made

        named = jvm.java.lang.Class.forName
        names = "javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", "[Ljava.lang.String;"
        # By its interface: the class of the server is not open to callers.
        invoke = named("javax.management.MBeanServer").getMethod("invoke", array("Class", *map(named, names)))
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        bean = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
        options = array("Object", array("String")), array("String", "[Ljava.lang.String;")
        told = invoke.invoke(server, array("Object", bean, "gcClassHistogram", *options))
        lines = [line.split() for line in str(told).splitlines()]
        return {line[3]: int(line[1]) for line in lines if len(line) >= 4 and line[0].endswith(":")}


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def table(readings: list[Reading]) -> str:
    names = [field.name.replace("_", " ") for field in fields(Reading)]
    rows = ["| " + " | ".join(map(str, astuple(reading))) + " |" for reading in readings]
    return "\n".join(["| " + " | ".join(names) + " |", "|" + "--:|" * len(names), *rows])


def growth(readings: list[Reading]) -> dict[str, float]:
    """Return how far a straight line through the second half climbs there, in parts of its mean."""
    half = readings[len(readings) // 2 :]
    jobs = np.array([one.jobs for one in half], dtype=float)
    found = {}
    for field in fields(Reading)[1:]:
        values = np.array([getattr(one, field.name) for one in half], dtype=float)
        slope = np.polyfit(jobs, values, 1)[0] if len(half) > 1 else 0.0
        found[field.name] = float(slope * (jobs[-1] - jobs[0]) / max(values.mean(), 1.0))
    return found


def chart(readings: list[Reading], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = [field.name for field in fields(Reading)][1:]
    figure, places = plt.subplots(3, 3, figsize=(14, 9))
    for name, place in zip(shown, places.flat, strict=True):
        place.plot([one.jobs for one in readings], [getattr(one, name) for one in readings], color="#2463eb")
        place.set_title(name.replace("_", " "))
        place.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--block", type=int, default=250, help="jobs between two looks")
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
    where = f"{STATE}, {versions()}, local[2], 2g driver, {platform.machine()}"
    climbs = ", ".join(f"{name.replace('_', ' ')} {part:+.1%}" for name, part in growth(readings).items())
    text = f"# Thousands of jobs in one process\n\n`bench/soak.py --jobs {arguments.jobs}`: {where}.\n\n{table(readings)}\n\n"
    text += f"From the first to the last job of the second half: {climbs}.\n"
    (arguments.output / "soak.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
