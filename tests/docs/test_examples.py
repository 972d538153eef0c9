"""The examples are self-contained: the tests of each pass in a copy of its folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from tests.conftest import OFF
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLES = ROOT / "examples"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["strategy", "connector"])
def test_an_example_passes_its_own_tests(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::pytest.PytestWarning"]
    done = subprocess.run(call, env=environ, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


def test_the_strategy_bounds_a_real_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own tests only check the limit of a node; this test checks the tasks that Spark ran."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "strategy"))
    from rows_per_task import RowsPerTask

    options = OFF | {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "1 kb"}
    df = spark.range(0, 3_000, 1, 2).selectExpr("id % 300 as k", "uuid() as v").groupBy("k").agg(F.max("v"))
    tasks = {}
    for name, strategies in {"with": [RowsPerTask(100)], "without": []}.items():
        env = Environment(spark, config=options, progress=False, strategies=strategies)
        assert len(env.collect(df)) == 300
        tasks[name] = env.last_job.vertices[-1].tasks
    assert tasks["without"] > 6 >= tasks["with"] > 1, tasks
