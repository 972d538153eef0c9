"""Writes to tables of a Hive metastore (Derby): the same rows as with plain Spark, and partition commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import TESTS

pytestmark = pytest.mark.slow

JOB = TESTS / "jobs" / "hive_writes.py"
DAYS = [f"day=2024-01-0{number}" for number in range(4)]


def run(folder: Path, action: str) -> subprocess.CompletedProcess[str]:
    for lock in (folder / "metastore").glob("*.lck"):
        lock.unlink()
    command = [sys.executable, str(JOB), str(folder), action]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)


def parse_result(process: subprocess.CompletedProcess[str]) -> Any:
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(process.stdout.partition("RESULT ")[2])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return parse_result(run(tmp_path_factory.mktemp("hive"), "write"))


@pytest.mark.parametrize("table", ["of_spark", "hive_parquet", "hive_orc"])
def test_new_partitions_are_committed_and_marked(results: Any, table: str) -> None:
    reason = "all files are visible; policies: success-file"
    for number, days, stage in ((0, DAYS, "4 partitions"), (1, DAYS, "1 partition"), (2, DAYS, "1 partition")):
        result = results[f"{table} {number}"]
        assert result["by"] == "penstock"
        assert result["same"], number
        assert result["marked"] == days
        assert result["stages"] == [f"{stage}: {reason}"]


def test_the_metastore_is_updated_after_the_files_and_before_the_markers(results: Any) -> None:
    assert results["metastore calls"] == {
        "after files": True,
        "before markers": True,
        "new partitions": dict.fromkeys(["of_spark", "hive_parquet", "hive_orc"], DAYS),
    }


def test_a_table_sink_calls_a_commit_function(results: Any) -> None:
    assert results["a sink"] == {"same": True, "function": DAYS}


def test_tables_with_hive_serialisers_are_written_by_spark(results: Any) -> None:
    for number in range(3):
        result = results[f"hive_text {number}"]
        assert (result["by"], result["same"], result["marked"]) == (None, True, [])
    assert "cannot be written by TableSink" in results["text by a sink"]


def test_a_table_without_partitions_has_no_partition_commit(results: Any) -> None:
    result = results["hive_flat 0"]
    assert (result["by"], result["same"], result["stages"], result["files"]) == ("penstock", True, [], 3)


def test_the_next_run_completes_a_job_that_died_before_the_metastore_update(tmp_path: Path) -> None:
    assert run(tmp_path, "die").returncode == 9
    recovered = parse_result(run(tmp_path, "repeat"))
    assert (recovered["before"]["partitions"], recovered["before"]["marked"]) == ([], [])
    assert recovered["after"] == {"rows": 1000, "partitions": DAYS, "marked": DAYS}
