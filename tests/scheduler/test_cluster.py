"""Jobs on a standalone cluster and a local cluster, also while workers and executors are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.support.paths import TESTS

pytestmark = pytest.mark.cluster

HOME = Path(pyspark.__file__).parent
JOB = TESTS / "jobs" / "revenue.py"
QUIET = ("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR", "--conf", "spark.driver.host=127.0.0.1")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def daemon(*arguments: str) -> subprocess.Popen:
    environ = os.environ | {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(
        [HOME / "bin" / "spark-class", *arguments],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextmanager
def cluster(folder: Path, cores: int = 1) -> Iterator[Any]:
    """Run a master and two workers; yield the master's URL and the workers."""
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    started = [
        daemon("org.apache.spark.deploy.master.Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", str(page))
    ]
    try:
        wait_for(lambda: alive(page) == 0, "the master")
        workers = [
            daemon(
                "org.apache.spark.deploy.worker.Worker",
                "-h",
                "127.0.0.1",
                "-c",
                str(cores),
                "-m",
                "1g",
                "-d",
                str(folder / f"worker{i}"),
                "--webui-port",
                str(free_port()),
                master,
            )
            for i in range(2)
        ]
        started += workers
        wait_for(lambda: alive(page) == 2, "two workers")
        yield master, workers
    finally:
        for process in started:
            kill(process)


def alive(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            return json.load(answer)["aliveworkers"]
    except OSError:
        return -1


def wait_for(condition: Any, description: str, seconds: float = 90) -> None:
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return
        time.sleep(0.3)
    raise TimeoutError(description)


def kill(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def start(master: str, *arguments: str, job: Path = JOB) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "run",
        "--output-format",
        "json",
        "--master",
        master,
        *QUIET,
        str(job),
        *arguments,
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )


def finish(process: subprocess.Popen, folder: Path) -> tuple[dict, list]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    rows = [
        json.loads(line) for file in sorted((folder / "out").glob("part-*")) for line in file.read_text().splitlines()
    ]
    return json.loads(out[out.index("{") :]), sorted(rows, key=lambda row: row["team"])


EXPECTED = [{"team": team, "n": 60_000, "s": sum(range(team, 300_000, 5))} for team in range(5)]


@pytest.mark.slow
def test_a_job_runs_on_a_local_cluster(tmp_path: Path) -> None:
    report, rows = finish(start("local-cluster[2,1,1024]", str(tmp_path / "out")), tmp_path)
    assert rows == EXPECTED
    assert report["jobs"][0]["state"] == "FINISHED"


@pytest.mark.alone
def test_a_job_runs_on_a_standalone_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path) as (master, _):
        report, rows = finish(start(master, str(tmp_path / "out")), tmp_path)
    assert rows == EXPECTED
    assert [vertex["state"] for vertex in report["jobs"][0]["vertices"]] == ["FINISHED"] * 4


@pytest.mark.slow
def test_a_job_on_a_standalone_cluster_survives_a_killed_worker(tmp_path: Path) -> None:
    with cluster(tmp_path) as (master, workers):
        process = start(master, str(tmp_path / "out"), str(tmp_path / "reached"))
        wait_for((tmp_path / "reached").exists, "the second vertex")
        kill(workers[0])
        report, rows = finish(process, tmp_path)
    assert rows == EXPECTED
    assert report["jobs"][0]["state"] == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "chosen"), [("10 mb", "right"), ("-1", "not the right side")])
def test_a_job_survives_a_lost_executor_after_the_build_side_was_measured(
    tmp_path: Path, threshold: str, chosen: str
) -> None:
    reached = tmp_path / "reached"
    process = start(
        "local-cluster[2,1,1024]", str(tmp_path / "out"), str(reached), threshold, job=JOB.parent / "delayed_probe.py"
    )
    wait_for(reached.exists, "the probe side")
    pids = subprocess.run(
        ["pgrep", "-f", "CoarseGrainedExecutorBackend"], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(pids[0]), signal.SIGKILL)
    report, rows = finish(process, tmp_path)
    assert rows == EXPECTED
    assert chosen in [
        decision["chosen"] for decision in report["jobs"][0]["decisions"] if decision["kind"] == "broadcast"
    ]


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Reports of jobs during which an executor was killed, in the last job together with its worker."""
    folder = tmp_path_factory.mktemp("killed")
    with cluster(folder, cores=2) as (master, _):
        job = [sys.executable, str(JOB.parent / "killed_workers.py"), master, str(folder)]
        done = subprocess.run(job, capture_output=True, text=True, check=False, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("RESULT "))


KILLED = [
    # the job, the number of successful tasks that ran again as their output was lost, and the rows that its vertices wrote
    # to exchanges: None if Spark counted the rows of repeated tasks twice, or if the vertex wrote none
    ("shuffled", 1, [None, 100, 30, None]),
    ("broadcast", 1, [None, 20, None]),
    ("behind", 1, [60000, None, None]),
    ("exchanged", 0, [None]),
    ("written", 0, [60000, None]),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "again", "rows"), KILLED)
def test_a_killed_executor_neither_loses_nor_duplicates_rows(
    survived: Any, name: str, again: int, rows: list[int | None]
) -> None:
    report = survived[name]
    assert report["killed"], report
    assert report["rows"] == "same"
    assert report["state"] == "FINISHED"
    assert report["failed"] >= 1, report
    assert report["again"] >= again, report
    assert report["rows_out"] == rows


def test_the_job_file_does_not_set_a_master() -> None:
    assert not re.search(r"master|local\[", JOB.read_text())
