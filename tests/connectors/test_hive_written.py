"""Tables of a Hive metastore (Derby) written by Penstock: rows as plain Spark writes them, and partitions committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

JOB = Path(__file__).parent.parent / "jobs" / "hive_written.py"
DAYS = [f"day=2024-01-0{number}" for number in range(4)]


def run(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    for lock in (folder / "metastore").glob("*.lck"):
        lock.unlink()
    command = [sys.executable, str(JOB), str(folder), what]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)


def said(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.partition("SAID ")[2])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return said(run(tmp_path_factory.mktemp("hive"), "write"))


@pytest.mark.parametrize("table", ["of_spark", "hive_parquet", "hive_orc"])
def test_partitions_are_committed(found: Any, table: str) -> None:
    told = "all their files are visible: success-file"
    for number, days, stage in ((0, DAYS, "4 partitions"), (1, DAYS, "1 partition"), (2, DAYS, "1 partition")):
        one = found[f"{table} {number}"]
        assert one["by"] == "penstock"
        assert one["same"], number
        assert one["marked"] == days
        assert one["stages"] == [f"{stage}: {told}"]


def test_the_metastore_hears_of_partitions_when_their_files_are_there_and_before_they_are_marked(found: Any) -> None:
    assert found["told"] == {
        "files were there": True,
        "markers were not": True,
        "new partitions": dict.fromkeys(["of_spark", "hive_parquet", "hive_orc"], DAYS),
    }


def test_a_sink_and_a_function(found: Any) -> None:
    assert found["a sink"] == {"same": True, "function": DAYS}


def test_what_hives_serialisers_write_is_left_to_spark(found: Any) -> None:
    for number in range(3):
        one = found[f"hive_text {number}"]
        assert (one["by"], one["same"], one["marked"]) == (None, True, [])
    assert "cannot be written by TableSink" in found["text by a sink"]


def test_a_table_without_partitions(found: Any) -> None:
    one = found["hive_flat 0"]
    assert (one["by"], one["same"], one["stages"], one["files"]) == ("penstock", True, [], 3)


def test_a_driver_that_dies_before_the_metastore_hears(tmp_path: Path) -> None:
    assert run(tmp_path, "die").returncode == 9
    after = said(run(tmp_path, "again"))
    assert (after["before"]["partitions"], after["before"]["marked"]) == ([], [])
    assert after["after"] == {"rows": 1000, "partitions": DAYS, "marked": DAYS}
