"""Ctrl-C during `penstock run`: the jobs end, a write leaves no files, and the message is short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extension.test_cancel import wait_until

PROGRAM = """
import pathlib, sys, time
from pyspark.sql import SparkSession, functions as F

sys_argv = list(sys.argv)  # for the tasks
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

@F.udf("long")
def slow(value):
    pathlib.Path(sys_argv[2]).touch()
    time.sleep(0.2)
    return value

rows = spark.range(4000).groupBy("id").count().repartition(2, "id").select(slow("id").alias("id"))
rows.write.parquet(sys.argv[1])
print("written")
"""
SETTINGS = {"PENSTOCK_EXECUTION_BATCH_ADAPTIVE_WHOLE_QUERY_THRESHOLD": "0", "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.thorough
@pytest.mark.parametrize("enabled", [True, False])
def test_an_interrupted_write_leaves_no_files(tmp_path: Path, enabled: bool) -> None:
    program, target, started = (tmp_path / name for name in ("job.py", "out", "started"))
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "penstock", "run", "--quiet"]
    command += ["--conf", f"spark.penstock.enabled={str(enabled).lower()}", str(program), str(target), str(started)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | SETTINGS,
        start_new_session=True,
    ) as process:
        wait_until(lambda: started.exists() or process.poll() is not None, 120)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert output == ""
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors, errors
    assert not list(target.rglob("*"))
