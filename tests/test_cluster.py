"""The same job file on a real standalone cluster and in local-cluster; a worker killed in the middle."""

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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.cluster

HOME = Path(pyspark.__file__).parent
JOB = Path(__file__).parent / "jobs" / "revenue.py"
QUIET = ("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR", "--conf", "spark.driver.host=127.0.0.1")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


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
    """A master and two workers; gives the master's URL and the workers."""
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


def wait_for(condition: Any, what: str, seconds: float = 90) -> None:
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return
        time.sleep(0.3)
    raise TimeoutError(what)


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
def test_local_cluster(tmp_path: Path) -> None:
    said, rows = finish(start("local-cluster[2,1,1024]", str(tmp_path / "out")), tmp_path)
    assert rows == EXPECTED
    assert said["jobs"][0]["state"] == "FINISHED"


@pytest.mark.slow
def test_standalone_and_a_killed_worker(tmp_path: Path) -> None:
    with cluster(tmp_path) as (master, workers):
        said, rows = finish(start(master, str(tmp_path / "out")), tmp_path)
        assert rows == EXPECTED
        assert [vertex["state"] for vertex in said["jobs"][0]["vertices"]] == ["FINISHED"] * 4

        again = tmp_path / "again"
        again.mkdir()
        process = start(master, str(again / "out"), str(again / "reached"))
        wait_for((again / "reached").exists, "the second vertex")
        kill(workers[0])
        said, rows = finish(process, again)
        assert rows == EXPECTED
        assert said["jobs"][0]["state"] == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "chosen"), [("10 mb", "right"), ("-1", "not the right side")])
def test_an_executor_lost_after_the_build_side_was_measured(tmp_path: Path, threshold: str, chosen: str) -> None:
    reached = tmp_path / "reached"
    process = start(
        "local-cluster[2,1,1024]", str(tmp_path / "out"), str(reached), threshold, job=JOB.parent / "held.py"
    )
    wait_for(reached.exists, "the probe side")
    found = subprocess.run(
        ["pgrep", "-f", "CoarseGrainedExecutorBackend"], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(found[0]), signal.SIGKILL)
    said, rows = finish(process, tmp_path)
    assert rows == EXPECTED
    assert chosen in [
        decision["chosen"] for decision in said["jobs"][0]["decisions"] if decision["kind"] == "broadcast"
    ]


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What jobs say whose executors were killed in the middle, and a worker with its executor in the last."""
    folder = tmp_path_factory.mktemp("killed")
    with cluster(folder, cores=2) as (master, _):
        job = [sys.executable, str(JOB.parent / "killed.py"), master, str(folder)]
        done = subprocess.run(job, capture_output=True, text=True, check=False, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("SAID "))


KILLED = [
    # the job, how many of its tasks ran in the stage again that had succeeded (what they had written was lost), and the
    # rows that its vertices wrote to exchanges: -1 where Spark has counted those of repeated tasks twice, and where the
    # vertex wrote none
    ("shuffled", 1, [-1, 100, 30, -1]),
    ("broadcast", 1, [-1, 20, -1]),
    ("behind", 1, [60000, -1, -1]),
    ("exchanged", 0, [-1]),
    ("written", 0, [60000, -1]),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "again", "rows"), KILLED)
def test_rows_come_once_when_an_executor_is_killed_in_the_middle(
    survived: Any, name: str, again: int, rows: list[int | None]
) -> None:
    said = survived[name]
    assert said["killed"], said
    assert said["rows"] == "same"
    assert said["state"] == "FINISHED"
    assert said["failed"] >= 1, said
    assert said["again"] >= again, said
    assert said["rows_out"] == rows


def test_the_job_file_names_no_cluster() -> None:
    assert not re.search(r"master|local\[", JOB.read_text())
