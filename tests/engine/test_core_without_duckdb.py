"""Penstock works without the package `penstock.duckdb`, and so do the other tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

NAME = Path(__file__).name
NEEDS_DUCKDB = ["src/penstock/duckdb", "tests/duckdb"]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project without DuckDB as a native engine."""
    folder = tmp_path_factory.mktemp("core")
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, output.split("\0")):
        if not name.startswith(tuple(f"{part}/" for part in NEEDS_DUCKDB)) and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / "data").symlink_to(ROOT / "data")
    return folder


def run(core: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(core / "src"), str(core)])
    command = [sys.executable, *arguments]
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=core, env=env, capture_output=True, text=True, check=False)


PROGRAM = """
import penstock
from penstock import Environment

assert penstock.__file__.startswith({core!r})
env = Environment(config={{"execution.native": True}})
rows = env.spark.range(1000).selectExpr("id % 7 as key", "id")
counts = env.collect(rows.groupBy("key").count())
assert sorted(counts) == sorted(rows.groupBy("key").count().collect())
print(len(counts), "groups")
"""


def test_a_job_runs_without_the_engine(core: Path) -> None:
    process = run(core, "-c", PROGRAM.format(core=str(core)))
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout == "7 groups\n"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_tests_of_the_core_pass_without_the_engine(core: Path) -> None:
    """The ignored tests are about the repository, not the package; and this test would run itself."""
    selected = "not slow and not thorough and not duckdb"
    ignored = [f"--ignore={tests}" for tests in ("tests/bench", "tests/docs", "tests/tools", f"tests/engine/{NAME}")]
    processes = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    process = run(core, "-m", "pytest", "-m", selected, "-p", "no:cacheprovider", *processes, *ignored, "tests")
    assert process.returncode == 0, process.stdout[-5000:]
