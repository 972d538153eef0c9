"""`penstock connect-server`, and Spark's own Connect client."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENT = """
import json, sys, threading, time
from pyspark.sql import functions as F
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.conf.set("spark.penstock.execution.batch.adaptive.whole-query-threshold", "0")
df = spark.range(100).groupBy((F.col("id") % 3).alias("k")).agg(F.count("*").alias("n")).orderBy("k")
"""
ACTIONS = """
found = {"collect": [tuple(row) for row in df.collect()], "pandas": df.toPandas().values.tolist()}
df.write.mode("overwrite").parquet(sys.argv[2])
found["written"] = spark.read.parquet(sys.argv[2]).count()
df.createOrReplaceTempView("t")
found["sql"] = [tuple(row) for row in spark.sql("SELECT sum(n) FROM t").collect()]
try:
    spark.range(9).groupBy("id").agg(F.sum(F.expr("1 div (id - 5)"))).collect()
except Exception as error:
    found["error"] = [type(error).__name__, error.getCondition()]
print(json.dumps(found))
"""
SLOW = """
wait = F.udf(lambda value: time.sleep(60) or value, "long")
slow = spark.range(4).select(wait("id").alias("id")).groupBy("id").count()
"""
INTERRUPT = (
    SLOW
    + """
def run():
    try:
        slow.collect()
    except Exception as error:
        print(json.dumps({"seconds": time.time() - asked[0], "error": str(error)[:200]}))

asked = []
thread = threading.Thread(target=run)
thread.start()
time.sleep(8)
asked.append(time.time())
assert spark.interruptAll()
thread.join()
"""
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server, and the folder of its event logs."""
    logs = tmp_path_factory.mktemp("logs")
    command = [sys.executable, "-m", "penstock", "connect-server", "--port", "0", "--history", str(logs)]
    command += ["--token", "secret", "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    address = ""
    for line in running.stderr:
        found = re.search(r"sc://\w+:\d+", line)
        if found:
            address = found[0]
            break
    assert address, "the server did not start"
    threading.Thread(target=running.stderr.read, daemon=True).start()  # a full pipe would hold it up
    yield f"{address}/;token=secret", logs
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 0


def client(code: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT + code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_client_gets_what_it_gets_of_spark_and_its_queries_are_jobs(server: tuple[str, Path], tmp_path: Path) -> None:
    address, logs = server
    before = len(list(logs.iterdir()))
    assert client(ACTIONS, address, str(tmp_path / "out")) == {
        "collect": [[0, 34], [1, 33], [2, 33]],
        "pandas": [[0, 34], [1, 33], [2, 33]],
        "written": 3,
        "sql": [[100]],
        "error": ["ArithmeticException", "DIVIDE_BY_ZERO"],
    }
    assert len(list(logs.iterdir())) >= before + 5
    names = [json.loads(log.read_text().partition("\n")[0])["name"] for log in sorted(logs.iterdir())]
    assert "SELECT sum(n) FROM t" in names
    assert "query" in names


def test_an_interrupt_ends_the_query_and_its_job(server: tuple[str, Path]) -> None:
    found = client(INTERRUPT, server[0])
    assert found["seconds"] < 2
    assert "OPERATION_CANCELED" in found["error"] or "cancel" in found["error"].lower()


TICKS = """
path = sys.argv[2]

def tick(value):
    for _ in range(600):
        with open(path, "a") as file:
            file.write(".")
        time.sleep(0.1)
    return value

slow = spark.range(4).select(F.udf(tick, "long")("id").alias("id")).groupBy("id").count()
slow.collect()
"""


def test_a_client_that_is_killed_leaves_nothing_running(server: tuple[str, Path], tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    command = [sys.executable, "-W", "ignore", "-c", CLIENT + TICKS, server[0], str(ticks)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not ticks.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert ticks.exists()
    running.kill()
    running.wait()
    time.sleep(7 + 5)  # as `connect.settings` says; Spark gives Python some more seconds to stop by itself
    size = ticks.stat().st_size
    time.sleep(1)
    assert ticks.stat().st_size == size


def test_a_client_without_the_token_is_refused(server: tuple[str, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT + "df.collect()", server[0].partition("/;")[0]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "UNAUTHENTICATED" in done.stderr or "token" in done.stderr.lower()


def test_other_machines_come_in_with_a_token_only() -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "connect-server", "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "--token" in done.stderr
    assert time.monotonic() - started < 10
