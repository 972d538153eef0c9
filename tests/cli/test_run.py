"""`penstock run`: output, the file's own error and exit code, and the page that stays open."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import penstock as package
from tests.cli.test_main import penstock

JOB = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(1000).selectExpr("id % 7 as k", "id").groupBy("k").agg(F.sum("id")).collect()
print("rows:", len(rows))
{end}
"""
PACKAGE = str(Path(package.__file__).parent)
ALL = {"PENSTOCK_EXECUTION_BATCH_ADAPTIVE_WHOLE_QUERY_THRESHOLD": "0"}


# The arguments after `run`, and those that the program receives.
ARGUMENTS = {
    "JOB 2026-11 -v": ["2026-11", "-v"],
    "JOB --history x --quiet --ui --help": ["--history", "x", "--quiet", "--ui", "--help"],
    "JOB --config x --conf a --master m --output-format yaml": [
        *("--config", "x", "--conf", "a", "--master", "m", "--output-format", "yaml")
    ],
    "--quiet JOB -- -v --": ["--", "-v", "--"],
    "-- JOB --quiet": ["--quiet"],
    "JOB --nonsense": ["--nonsense"],
    "JOB": [],
}


@pytest.mark.thorough
@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("words", "module"),
    [
        (words, module)
        for words in ARGUMENTS
        for module in (("run",), ("verify",), ())
        if words.startswith("JOB") or module == ("run",)  # without a command, the file is first; only run has --quiet
    ],
)
def test_arguments_after_the_file_belong_to_the_program(tmp_path: Path, words: str, module: tuple[str, ...]) -> None:
    file = tmp_path / "job.py"
    file.write_text("import sys\nprint('ARGS', sys.argv)\n")
    command = [
        sys.executable,
        "-m",
        "penstock",
        *module,
        *(str(file) if word == "JOB" else word for word in words.split()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert f"ARGS {[str(file), *ARGUMENTS[words]]}\n" in done.stdout, done.stderr
    assert done.returncode == (2 if module == ("verify",) else 0)  # nothing was compared


def written(tmp_path: Path, end: str = "") -> str:
    file = tmp_path / "job.py"
    file.write_text(JOB.format(end=end))
    return str(file)


def test_exit_code_of_the_program(tmp_path: Path) -> None:
    done = penstock("run", written(tmp_path, "sys.exit(3)"), **ALL)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("rows: 7\n")
    assert "Queries" in done.stdout


@pytest.mark.thorough
def test_error_of_the_program(tmp_path: Path) -> None:
    file = written(tmp_path, "def load():\n    spark.sql('select * from nowhere')\nload()")
    done = penstock("run", "--quiet", file, **ALL)
    assert done.returncode == 1
    assert done.stdout == "rows: 7\n"
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert frames[0] == f'  File "{file}", line 11, in <module>'
    assert frames[1] == f'  File "{file}", line 10, in load'
    assert not any(PACKAGE in frame for frame in frames)
    assert "TABLE_OR_VIEW_NOT_FOUND" in done.stderr


@pytest.mark.thorough
def test_verbose_shows_logs(tmp_path: Path) -> None:
    done = penstock("run", "--verbose", written(tmp_path), **ALL)
    assert done.returncode == 0
    assert "log4j" in done.stderr or "WARN" in done.stderr
    assert "penstock" in done.stderr


@pytest.mark.thorough
def test_setting_with_which_spark_cannot_start(tmp_path: Path) -> None:
    done = penstock("run", "--conf", "spark.driver.memory=much", written(tmp_path))
    assert done.returncode == 1
    assert "Spark could not be started" in done.stderr
    assert "cause:" in done.stderr
    assert done.stderr.count("Spark could not be started") == 1


@pytest.mark.thorough
def test_the_page_stays_open(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "run", "--keep-open", written(tmp_path, "sys.exit(3)")]
    environ = os.environ | ALL | {"SPARK_LOCAL_IP": "127.0.0.1", "PENSTOCK_REST_PORT": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as job:
        try:
            line = next(line for line in job.stderr if "stays open" in line)
            address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
            with urllib.request.urlopen(f"{address}jobs/overview") as answer:
                assert [job["state"] for job in json.load(answer)["jobs"]] == ["FINISHED"]
            job.send_signal(signal.SIGINT)
            assert job.wait(30) == 3
        finally:
            job.kill()
