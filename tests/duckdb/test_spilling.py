"""Queries that end while DuckDB spills: cancelled, killed, or on a full disk, in separate sessions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.disks import small_file_system
from tests.support.paths import TESTS
from tests.support.stages import SINGLE_DUCKDB_TASK

JOB = TESTS / "jobs" / "spilling.py"
BY_DUCKDB = [[SINGLE_DUCKDB_TASK, ""]]
FALLBACK = [[SINGLE_DUCKDB_TASK, "Spark computes it"]]
ROWS = [[2_000_000, 2_000_000]]
NEXT = {"next": [[1000, 1000]], "next by": BY_DUCKDB, "left": []}


def run(folder: Path, local_dirs: str, *cases: str) -> Any:
    command = [sys.executable, JOB, str(folder), local_dirs, *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("RESULT "))


@pytest.mark.thorough
def test_a_query_that_is_stopped_while_it_spills_leaves_nothing(tmp_path: Path) -> None:
    """The files of a cancelled query, or of a killed worker, are removed by DuckDB's next query."""
    local = tmp_path / "local"
    local.mkdir()
    stopped = run(tmp_path, str(local), "cancelled", "killed")
    assert stopped["cancelled"].pop("seconds") < 3
    assert stopped["cancelled"] == {"state": "CANCELED", "written": False} | NEXT
    assert stopped["killed"] == {"killed": 1, "rows": ROWS, "by": FALLBACK} | NEXT


@pytest.mark.slow
def test_a_query_that_has_no_room_to_spill_is_computed_by_spark(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small", 96) as small:
        done = run(tmp_path, f"{small},{tmp_path}", "full")
    assert done["full"] == {"rows": ROWS, "by": FALLBACK} | NEXT
