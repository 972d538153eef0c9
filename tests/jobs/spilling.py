"""Queries for which DuckDB spills; prints their results as JSON.

Arguments: a folder for the table, the local directories of Spark, and the names of cases.
"""

import contextlib
import glob
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

folder, local_dirs, *names = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import FileSink
from penstock.errors import JobCancelledError

ROWS = 2_000_000
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .config("spark.local.dir", local_dirs)
    .getOrCreate()
)
spark.range(0, ROWS, 1, 4).selectExpr("id", "md5(cast(id as string)) as text").write.parquet(f"{folder}/table")
spark.read.parquet(f"{folder}/table").createOrReplaceTempView("t")
GROUPS = "SELECT count(*) AS groups, sum(n) AS rows FROM (SELECT text, count(*) AS n FROM t GROUP BY text)"
FEW_GROUPS = GROUPS.replace("FROM t", "FROM t WHERE id < 1000")
env = Environment(
    spark,
    config={
        "execution.batch.adaptive.whole-query-threshold": 1,
        "execution.native": True,
        "execution.native.memory": "40 mb",  # for each of two threads
    },
    progress=False,
)


def spill_directories():
    return glob.glob(f"{local_dirs.split(',')[0]}/blockmgr-*/penstock-duckdb-*")


def spilled_bytes():
    files = (path for directory in spill_directories() for path in Path(directory).rglob("*"))
    return sum(path.stat().st_size for path in files if path.is_file())


def wait_until_it_spills():
    deadline = time.monotonic() + 120
    while spilled_bytes() < 1 << 20:
        if time.monotonic() > deadline:
            raise TimeoutError("DuckDB did not spill")
        time.sleep(0.01)


def workers_that_spill():
    """Yield the processes that have a file of a spill directory open."""
    for links in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if "/penstock-duckdb-" in os.readlink(links) and ".ledger" not in os.readlink(links):
                yield int(links.split("/")[2])
        except OSError:
            continue


def outcome():
    """Return the chosen engines of the last job, and the fallbacks."""
    decisions = [decision for decision in env.last_job.decisions if decision.kind == "native"]
    return [[str(decision.chosen), str(decision.outcome.get("instead", ""))] for decision in decisions]


def run_next_query():
    """Run another query in DuckDB; return its rows, its engines, and the remaining spill directories."""
    rows = [tuple(row) for row in env.collect(spark.sql(FEW_GROUPS))]
    names = [os.path.basename(directory) for directory in spill_directories()]
    return {"next": rows, "next by": outcome(), "left": [name for name in names if not name.endswith(".ledger")]}


def cancelled():
    env.write(spark.sql(GROUPS), FileSink(f"{folder}/cancelled"))
    job = env.execute_async("cancelled")
    wait_until_it_spills()
    started = time.monotonic()
    job.cancel()
    with contextlib.suppress(JobCancelledError):
        job.wait(30)
    seconds = time.monotonic() - started
    return {
        "state": str(job.state),
        "seconds": seconds,
        "written": os.path.exists(f"{folder}/cancelled"),
    } | run_next_query()


def killed():
    def kill():
        wait_until_it_spills()
        for worker in set(workers_that_spill()):
            os.kill(worker, signal.SIGKILL)
            killed_workers.append(worker)

    killed_workers = []
    thread = threading.Thread(target=kill)
    thread.start()
    rows = [tuple(row) for row in env.collect(spark.sql(GROUPS))]
    thread.join()
    return {"killed": len(killed_workers), "rows": rows, "by": outcome()} | run_next_query()


def full():
    rows = [tuple(row) for row in env.collect(spark.sql(GROUPS))]
    return {"rows": rows, "by": outcome()} | run_next_query()


CASES = {"cancelled": cancelled, "killed": killed, "full": full}
print("RESULT", json.dumps({name: CASES[name]() for name in names}, default=str), flush=True)
spark.stop()
