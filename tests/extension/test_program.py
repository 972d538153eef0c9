"""Unmodified programs: with `penstock run`, with `python -m penstock`, and with settings only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("mine").config("spark.sql.shuffle.partitions", "7").config("spark.ui.enabled", "false")
spark = spark.config("spark.penstock.execution.batch.adaptive.whole-query-threshold", THRESHOLD).getOrCreate()
rows = spark.range(100).groupBy((F.col("id") % 3).alias("k")).count().orderBy("k").collect()
print("ROWS", [tuple(row) for row in rows], sys.argv[1:], spark.conf.get("spark.sql.shuffle.partitions"), file=sys.stderr)
spark.stop()
"""
ROWS = "ROWS [(0, 34), (1, 33), (2, 33)] ['--day', '2026-11'] 7"
BIN = Path(sys.executable).parent


def run(command: Sequence[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    ours = {key: value for key, value in os.environ.items() if key not in {"PYSPARK_SUBMIT_ARGS", "MASTER"}}
    # spark-submit looks for Python in the path
    environment = {**ours, **variables, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=180, check=False, env=environment
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "job.py"
    file.write_text(PROGRAM.replace("THRESHOLD", "0"))
    return file


@pytest.mark.thorough
def test_penstock_run_runs_any_program_and_reports_its_queries(program: Path) -> None:
    command = [sys.executable, "-m", "penstock", "run", "--output-format", "json", program, "--day", "2026-11"]
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert ROWS in done.stderr
    queries = json.loads(done.stdout)["queries"]
    (query,) = queries["ran"]
    assert (query["name"], query["state"]) == (f"collect at {program.name}:7", "FINISHED")
    assert query["vertices"] >= 2
    assert queries["planned"]["taken"] == 1


@pytest.mark.thorough
def test_a_program_that_creates_its_session_from_a_context(tmp_path: Path) -> None:
    """As in old programs and in tests of libraries, without a session builder."""
    file = tmp_path / "old.py"
    session_code = (
        "from pyspark import SparkConf, SparkContext\nspark = SparkSession(SparkContext(conf=SparkConf().set("
    )
    session_code += (
        "'spark.ui.enabled', 'false').set('spark.penstock.execution.batch.adaptive.whole-query-threshold', '0')))\n"
    )
    query = PROGRAM[PROGRAM.index("rows =") :].replace(
        '"spark.sql.shuffle.partitions"', '"spark.sql.shuffle.partitions", "7"'
    )
    file.write_text(PROGRAM[: PROGRAM.index("spark =")] + session_code + query)
    done = run([sys.executable, "-m", "penstock", "run", "--output-format", "json", file, "--day", "2026-11"])
    assert done.returncode == 0, done.stderr
    assert "ROWS [(0, 34), (1, 33), (2, 33)]" in done.stderr
    (query_ran,) = json.loads(done.stdout)["queries"]["ran"]
    assert query_ran["state"] == "FINISHED"


@pytest.mark.thorough
def test_the_master_is_that_of_the_spark_defaults(tmp_path: Path) -> None:
    """As in plain Spark, if nothing else sets the master."""
    (tmp_path / "spark-defaults.conf").write_text("spark.master local[3]\nspark.ui.enabled false\n")
    job, embedded = tmp_path / "job.py", tmp_path / "embedded.py"
    print_master = "print('MASTER', spark.sparkContext.master)\n"
    job.write_text(f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n{print_master}")
    embedded.write_text(f"import penstock\nspark = penstock.enable()\n{print_master}")
    for command in ([sys.executable, "-m", "penstock", "run", job], [sys.executable, embedded]):
        done = run(command, SPARK_CONF_DIR=str(tmp_path))
        assert "MASTER local[3]" in done.stdout, done.stderr


@pytest.mark.thorough
def test_threads_that_are_not_pinned_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("import penstock\npenstock.enable()\n")
    done = run([sys.executable, file], PYSPARK_PIN_THREAD="false")
    assert done.returncode != 0
    assert "PYSPARK_PIN_THREAD is false" in done.stderr


@pytest.mark.thorough
def test_declined_queries_are_reported_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(PROGRAM.replace("THRESHOLD", "64 << 20"))
    done = run([sys.executable, "-m", "penstock", file, "--day", "2026-11"])
    assert done.returncode == 0, done.stderr
    assert ROWS in done.stderr
    assert "run by Spark: 1 small" in done.stdout


def test_a_failing_program_has_the_exit_code_of_plain_spark(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("import sys\nsys.exit(7)\n")
    assert run([sys.executable, "-m", "penstock", "run", file]).returncode == 7


AT_EXIT = """
import atexit, sys, threading
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "4")
spark = spark.config("spark.penstock.execution.batch.adaptive.whole-query-threshold", "0").getOrCreate()

def rows(when):
    print(when, sorted(map(tuple, spark.range(9).groupBy((F.col("id") % 3).alias("k")).count().collect())), file=sys.stderr)

def at_exit():
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    threading.Thread.start = refuse  # as Python 3.12 does
    rows("EXIT")
    earlier.collect()
    rows("EARLIER")

def later():
    rows("LATER")
    server = spark.sparkContext._gateway.java_gateway_server
    server.resetCallbackClient(server.getCallbackClient().getAddress(), 1)  # no server listens there
    rows("DEAF")

earlier = spark.range(9).groupBy("id").count()
earlier.explain()
atexit.register(at_exit)
rows("FIRST")
ended = threading.main_thread()
threading.Thread(target=lambda: (ended.join(), later())).start()
"""


@pytest.mark.thorough
def test_queries_when_python_ends_or_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(AT_EXIT)
    done = run([sys.executable, "-m", "penstock", "run", file])
    assert done.returncode == 0, done.stderr
    for when in ("FIRST", "LATER", "DEAF", "EXIT", "EARLIER"):
        assert f"{when} [(0, 3), (1, 3), (2, 3)]" in done.stderr, done.stderr


@pytest.mark.thorough
def test_with_settings_only(program: Path) -> None:
    submit = BIN / "spark-submit"
    served = Path(os.environ.get("TEST_PENSTOCK_PYTHON", BIN / "penstock-python"))
    log = program.with_suffix(".logs")
    log.mkdir()
    settings = {
        "spark.pyspark.driver.python": served,
        "spark.penstock.jobmanager.archive.fs.dir": log,
        "spark.log.level": "ERROR",
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    done = run([submit, "--master", "local[2]", *conf, program, "--day", "2026-11"])
    assert done.returncode == 0, done.stderr
    assert ROWS in done.stdout + done.stderr
    assert len(list(log.iterdir())) == 1
