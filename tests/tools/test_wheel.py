"""The wheel can be built and installed, and runs a job with its Java classes in separate executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.support.paths import ROOT
from tools.build_wheel import build

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SPARK = "--master local-cluster[1,2,1024] --conf spark.ui.enabled=false --conf spark.log.level=ERROR --conf spark.sql.shuffle.partitions=4"
EXPECTED = [[team, sum(range(team, 30_000, 5))] for team in range(5)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build(folder)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "--target", str(folder / "installed"), str(wheel)], check=True)
    return folder / "installed"


def run_job(package: Path, folder: Path) -> dict:
    """Run the job with a package, and return its report."""
    environ = os.environ | {
        "PYTHONPATH": f"{package}{os.pathsep}{ROOT}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{SPARK} pyspark-shell",
    }
    job = [sys.executable, str(ROOT / "tests" / "jobs" / "java_classes.py"), str(folder / "work")]
    done = subprocess.run(job, env=environ, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:3000]
    report = json.loads(done.stdout.splitlines()[-1])
    print(package, report)
    assert report["package"] == str(package / "penstock")
    return report


def test_executors_load_the_classes_of_the_wheel(installed: Any, tmp_path: Path) -> None:
    report = run_job(installed, tmp_path)
    major, minor, *_ = pyspark.__version__.split(".")
    assert report["from"].endswith(f"/penstock/spark/java/penstock-spark{major}.{minor}.jar")
    assert report["loader"] == "URLClassLoader"
    assert report["rows"] == report["rows_of_a_second_application"] == EXPECTED
    assert report["files_moved"]
    assert report["state_rows"] == 200


def test_executors_load_classes_compiled_at_run_time_without_a_wheel(tmp_path: Path) -> None:
    report = run_job(ROOT / "src", tmp_path)
    assert report["from"] is None
    assert report["loader"] == "CachingJavaSourceClassLoader"
    assert report["rows"] == report["rows_of_a_second_application"] == EXPECTED
    assert report["files_moved"]
    assert report["state_rows"] == 200
