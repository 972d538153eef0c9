"""Recovery of unfinished tables in a persistent catalog (Hive on Derby) after a job died."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import TESTS

JOB = TESTS / "jobs" / "unfinished_tables.py"
TABLES = ("created", "if_not_exists", "inserted", "overwritten")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=240, check=False, cwd=JOB.parent
    )


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The folder of a metastore in which a job has died while it created three tables and overwrote another."""
    process = run(JOB, tmp_path, "die")
    assert process.returncode == 9, process.stderr[-3000:]
    for lock in (tmp_path / "metastore").glob("*.lck"):
        lock.unlink()
    return tmp_path


def run_statements(folder: Path) -> Any:
    """Run a statement on each table, and return its outcome and the rows of the table."""
    process = run(JOB, folder, "recover")
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.partition("RESULT")[2])


@pytest.mark.thorough
def test_statements_roll_back_the_unfinished_tables_of_a_dead_job(warehouse: Path) -> None:
    """Each statement sees the table as before the job: missing, or with its old rows."""
    assert run_statements(warehouse) == {
        "created": [[], list(range(10))],
        "if_not_exists": [[], list(range(10))],
        "inserted": ["TABLE_OR_VIEW_NOT_FOUND", None],
        "overwritten": [[], [1, 3]],
    }
    assert list((warehouse / "warehouse").glob(".penstock*")) == []


@pytest.mark.slow
def test_the_command_line_recovers_with_the_catalog_of_the_job(warehouse: Path) -> None:
    """In a session with another catalog, recovery refuses to run, because it would not see the tables."""
    locations = [warehouse / "warehouse" / name for name in TABLES[-2:]]
    before = sorted(warehouse.glob("warehouse/**/*")), sorted(warehouse.glob("*"))
    for location in locations:
        process = run("-m", "penstock", "recover", location, "--apply")
        assert process.returncode != 0
        assert "spark.sql.catalogImplementation=hive" in process.stderr + process.stdout
    assert before == (sorted(warehouse.glob("warehouse/**/*")), sorted(warehouse.glob("*")))
    url = f"spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={warehouse}/metastore"
    conf = ("--conf", "spark.sql.catalogImplementation=hive", "--conf", url)
    for location in locations:
        process = run("-m", "penstock", "recover", location, "--apply", *conf)
        assert process.returncode == 0, process.stderr
        assert "undone" in process.stdout
    assert run_statements(warehouse)["overwritten"] == [[], [1, 3]]
