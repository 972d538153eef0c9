"""`penstock connect-server`, and Spark's own Connect client."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.extension.test_cancel import wait_until
from tests.extension.test_queries import ALWAYS
from tests.support.services import free_port

CLIENT = """
import json, sys, threading, time
from pyspark.sql import functions as F
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.conf.set("spark.penstock.execution.batch.adaptive.whole-query-threshold", "0")
df = spark.range(100).groupBy((F.col("id") % 3).alias("k")).agg(F.count("*").alias("n")).orderBy("k")
"""
ACTIONS = """
results = {"collect": [tuple(row) for row in df.collect()], "pandas": df.toPandas().values.tolist()}
df.write.mode("overwrite").parquet(sys.argv[2])
results["written"] = spark.read.parquet(sys.argv[2]).count()
df.createOrReplaceTempView("t")
results["sql"] = [tuple(row) for row in spark.sql("SELECT sum(n) FROM t").collect()]
try:
    spark.range(9).groupBy("id").agg(F.sum(F.expr("1 div (id - 5)"))).collect()
except Exception as error:
    results["error"] = [type(error).__name__, error.getCondition()]
print(json.dumps(results))
"""
ADDED = """
spark.addArtifact(sys.argv[2], pyfile=True)
spark.addArtifact(sys.argv[3], file=True)

@F.udf("long")
def times(value):
    import added_module
    return added_module.times(value)

@F.udf("string")
def text(value):
    import os
    from pyspark import SparkFiles
    return open(os.path.join(SparkFiles.getRootDirectory(), "added.txt")).read()

frames = [
    spark.range(20).groupBy(times(F.col("id") % 2).alias("k")).count().orderBy("k"),
    spark.range(100).groupBy(text("id")).count(),
    df.select("k", times("k")).orderBy("k"),
]
print(json.dumps([[list(row) for row in frame.collect()] for frame in frames]))
"""
OUR_CLASSES = """
spark.conf.set("spark.penstock.execution.verify", "true")
spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
spark.conf.set("spark.penstock.execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task", "64kb")
left, right = (spark.range(60000).select((F.col("id") % 20000).alias("k"), F.col("id").alias(n)) for n in "vw")
grouped = left.groupBy("k").agg(F.sum("v").alias("v")).join(right.groupBy("k").agg(F.sum("w").alias("w")), "k", "left")
print(json.dumps([list(row) for row in grouped.agg(F.count("*"), F.sum("v"), F.sum("w")).collect()]))
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
        print(json.dumps({"seconds": time.time() - interrupted[0], "error": str(error)[:200]}))

interrupted = []
thread = threading.Thread(target=run)
thread.start()
time.sleep(8)
interrupted.append(time.time())
assert spark.interruptAll()
thread.join()
"""
)


@dataclass(frozen=True)
class Server:
    """A running server: its address, the address of Spark's UI, and the folder of event logs."""

    address: str
    page: str
    logs: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    logs = tmp_path_factory.mktemp("logs")
    ui = free_port()
    command = [sys.executable, "-m", "penstock", "connect-server", "--port", "0", "--history", str(logs)]
    command += ["--token", "secret", "--master", "local[2]", "--conf", f"spark.ui.port={ui}"]
    command += ["--conf", "spark.ui.enabled=true"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    address = ""
    for line in running.stderr:
        match = re.search(r"sc://\w+:\d+", line)
        if match:
            address = match[0]
            break
    assert address, "the server did not start"
    threading.Thread(target=running.stderr.read, daemon=True).start()  # a full pipe would block the server
    yield Server(f"{address}/;token=secret", f"http://127.0.0.1:{ui}", logs)
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 0


def client(code: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT + code, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_client_gets_the_results_of_spark_and_its_queries_are_jobs(server: Server, tmp_path: Path) -> None:
    address, logs = server.address, server.logs
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
    assert not {"", "query"} & set(names)  # without a text, a query has the name of its outline


@pytest.mark.thorough
def test_artifacts_of_a_client_are_available_in_all_of_its_tasks_only(server: Server, tmp_path: Path) -> None:
    """Two clients add files with the same names."""
    for factor in (3, 5):
        (tmp_path / "added_module.py").write_text(f"def times(value):\n    return value * {factor}\n")
        (tmp_path / "added.txt").write_text(f"by {factor}")
        results = client(ADDED, server.address, str(tmp_path / "added_module.py"), str(tmp_path / "added.txt"))
        assert results == [[[0, 10], [factor, 10]], [[f"by {factor}", 100]], [[0, 0], [1, factor], [2, 2 * factor]]]


COPIES = """
from glob import glob
from pathlib import Path
from tempfile import gettempdir

added = Path(sys.argv[2])
spark.addArtifact(str(added), file=True)
copies = []
for number in range(4):
    rows = spark.range(100).groupBy((F.col("id") % 3 + number).alias("k")).count().collect()
    matches = [glob(f"{gettempdir()}/{folder}/{added.name}") for folder in ("artifacts-*/*/files", "spark-*/userFiles-*/*")]
    copies.append([len(rows), *map(len, matches)])
print(json.dumps(copies))
"""


@pytest.mark.thorough
def test_queries_make_no_copies_of_a_clients_artifacts(server: Server, tmp_path: Path) -> None:
    """Queries run in clones of the client's session; clones that Spark creates have permanent copies of the files."""
    added, before = tmp_path / f"added-{uuid.uuid4()}.bin", len(list(server.logs.iterdir()))
    added.write_bytes(b"some bytes")
    assert client(COPIES, server.address, str(added)) == [[3, 1, 1]] * 4
    assert len(list(server.logs.iterdir())) == before + 4  # they were jobs


@pytest.mark.thorough
def test_tasks_of_every_client_have_the_package_classes(server: Server) -> None:
    """Spark passes only the artifacts of a client to its tasks."""
    total = sum(range(60000))
    for _ in range(3):
        assert client(OUR_CLASSES, server.address) == [[20000, total, total]]


@pytest.mark.thorough
def test_an_interrupt_ends_the_query_and_its_job(server: Server) -> None:
    outcome = client(INTERRUPT, server.address)
    assert outcome["seconds"] < 2
    assert "OPERATION_CANCELED" in outcome["error"] or "cancel" in outcome["error"].lower()


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


def running_jobs(page: str) -> int:
    """Return the number of running jobs from Spark's REST API."""
    (application,) = json.load(urlopen(f"{page}/api/v1/applications"))
    jobs = json.load(urlopen(f"{page}/api/v1/applications/{application['id']}/jobs?status=running"))
    return len(jobs)


@pytest.mark.thorough
def test_a_client_that_is_killed_leaves_no_running_job_after_two_seconds(server: Server, tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    command = [sys.executable, "-W", "ignore", "-c", CLIENT + TICKS, server.address, str(ticks)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_until(ticks.exists, 60)
    assert running_jobs(server.page) == 1
    running.kill()
    assert wait_until(lambda: running_jobs(server.page) == 0, 2)
    running.wait()
    time.sleep(5)  # Spark gives Python some seconds to stop by itself
    size = ticks.stat().st_size
    time.sleep(1)
    assert ticks.stat().st_size == size


WAITS = """
wait = F.udf(lambda value: time.sleep(6) or value, "long")
print(json.dumps(len(spark.range(4).select(wait("id").alias("id")).groupBy("id").count().collect())))
"""


class Relay:
    """A proxy of a server whose connections can be cut."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._server))
            self._open += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)

    def cut(self) -> int:
        """Cut all connections; return their number."""
        cut, self._open = self._open, []
        for connection in cut:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        return len(cut) // 2


@pytest.mark.thorough
def test_a_client_whose_connection_broke_gets_its_rows(server: Server) -> None:
    port = int(re.findall(r":(\d+)/", server.address)[0])
    relay = Relay(port)
    cuts: list[int] = []
    threading.Thread(
        target=lambda: wait_until(lambda: running_jobs(server.page) == 1, 60) and cuts.append(relay.cut())
    ).start()
    assert client(WAITS, server.address.replace(str(port), str(relay.port))) == 4
    assert cuts == [1]


READS_SLOWLY = """
rows = spark.range(200_000).groupBy("id").count().toLocalIterator()
first = next(rows)
time.sleep(8)
print(json.dumps(1 + sum(1 for _ in rows)))
"""


@pytest.mark.thorough
def test_a_client_may_read_slowly(server: Server) -> None:
    assert client(READS_SLOWLY, server.address) == 200_000


QUERIES = """
import pathlib
from tests.support.equality import assert_same_rows

data, names = pathlib.Path(sys.argv[2]), sys.argv[3].split(",")
for file in data.glob("*.parquet"):
    spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
texts = json.loads((data.parent / "queries" / f"{data.name.split('-')[0]}.json").read_text())
differ = []
for name in names:
    rows = []
    for enabled in ("false", "true"):
        spark.conf.set("spark.penstock.enabled", enabled)
        rows.append(spark.sql(texts[name]).collect())
    try:
        assert_same_rows(rows[1], rows[0])
    except AssertionError as error:
        differ.append([name, str(error)[:300]])
print(json.dumps(differ))
"""
QUERIES_OF = [
    pytest.param("tpch", (1, 5, 9, 18, 21), id="some of TPC-H"),
    pytest.param("tpcds", sorted(ALWAYS)[::2], id="some of TPC-DS"),
    pytest.param("tpch", range(1, 23), id="TPC-H", marks=pytest.mark.slow),
    pytest.param("tpcds", range(1, 100), id="TPC-DS", marks=pytest.mark.slow),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "numbers"), QUERIES_OF)
def test_queries_of_a_client_return_the_rows_of_spark(
    server: Server, data: Path, name: str, numbers: Iterable[int]
) -> None:
    before = len(list(server.logs.iterdir()))
    assert client(QUERIES, server.address, str(data / f"{name}-0.1"), ",".join(map(str, numbers))) == []
    assert len(list(server.logs.iterdir())) == before + len(list(numbers))


def test_a_client_without_the_token_is_refused(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT + "df.collect()", server.address.partition("/;")[0]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "UNAUTHENTICATED" in done.stderr or "token" in done.stderr.lower()


@pytest.mark.parametrize(
    "arguments", [["--host", "0.0.0.0"], ["--conf", "spark.connect.grpc.binding.address=0.0.0.0"]], ids=["host", "conf"]
)
def test_other_machines_need_a_token(arguments: list[str]) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "connect-server", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "--token" in done.stderr
    assert time.monotonic() - started < 10
