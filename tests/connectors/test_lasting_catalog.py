"""A catalogue that outlives its driver (Hive's, on Derby): what a job has left in it half-way when it died."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).parent.parent / "jobs" / "half_made_tables.py"
TABLES = ("made", "if_not_exists", "inserted", "overwritten")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=240, check=False, cwd=JOB.parent
    )


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a metastore, in which a job that died has made three tables and overwritten one."""
    done = run(JOB, tmp_path, "die")
    assert done.returncode == 9, done.stderr[-3000:]
    for lock in (tmp_path / "metastore").glob("*.lck"):
        lock.unlink()
    return tmp_path


def again(folder: Path) -> Any:
    done = run(JOB, folder, "again")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.partition("SAID")[2])


@pytest.mark.thorough
def test_statements_at_tables_that_a_dead_job_has_left(left: Path) -> None:
    """Each finds the table as it was before the job that died: not there, or with its old rows."""
    assert again(left) == {
        "made": [[], list(range(10))],
        "if_not_exists": [[], list(range(10))],
        "inserted": ["TABLE_OR_VIEW_NOT_FOUND", None],
        "overwritten": [[], [1, 3]],
    }
    assert [one.name for one in (left / "warehouse").glob(".penstock*")] == []


@pytest.mark.slow
def test_recovered_from_the_command_line(left: Path) -> None:
    """A session with another catalogue would find no table, and would believe that nothing has to be told."""
    places = [left / "warehouse" / name for name in TABLES]
    before = sorted(left.glob("warehouse/**/*")), sorted(left.glob("*"))
    for place in places[-2:]:
        done = run("-m", "penstock", "recover", place, "--apply")
        assert done.returncode != 0
        assert "spark.sql.catalogImplementation=hive" in done.stderr + done.stdout
    assert before == (sorted(left.glob("warehouse/**/*")), sorted(left.glob("*")))
    url = f"spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={left}/metastore"
    conf = ("--conf", "spark.sql.catalogImplementation=hive", "--conf", url)
    for place in places[-2:]:
        done = run("-m", "penstock", "recover", place, "--apply", *conf)
        assert done.returncode == 0, done.stderr
        assert "undone" in done.stdout
    assert again(left)["overwritten"] == [[], [1, 3]]
