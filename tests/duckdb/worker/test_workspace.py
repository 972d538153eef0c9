"""Spill directories and memory of concurrent tasks, and the files that DuckDB may access."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.duckdb.worker.engine import NotNativeError, open_connection
from penstock.duckdb.worker.workspace import granted_memory, workspace
from tests.support.disks import small_file_system

MIB = 1 << 20
TASK = """
import json, sys, time
from penstock.duckdb.worker.workspace import workspace
with workspace(int(sys.argv[1]), int(sys.argv[2])) as space:
    begin = time.time()
    print(space.directory, flush=True)
    time.sleep(float(sys.argv[3]))
    print(json.dumps([begin, time.time(), space.memory]), flush=True)
"""


@pytest.fixture
def local_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "blockmgr"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},{tmp_path / 'other'}")
    return folder


def task(requested: int, budget: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TASK, str(requested), str(budget), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("requested", "budget", "reserved", "free", "expected"),
    [
        (100, 300, 0, 1000, 100),
        (100, 300, 200, 1000, 100),
        (100, 300, 240, 1000, 60),
        (100, 300, 250, 1000, 50),
        (100, 300, 251, 1000, None),
        (100, 300, 300, 1000, None),
        (500, 300, 0, 1000, 300),
        (100, 300, 0, 120, 60),
        (100, 300, 100, 120, None),
        (100, 300, 0, 0, 100),  # a single task starts with little memory
    ],
)
def test_granted(requested: int, budget: int, reserved: int, free: int, expected: int | None) -> None:
    assert granted_memory(requested, budget, reserved, free) == expected


def test_files_of_a_killed_task_are_removed_by_the_next(local_dirs: Path) -> None:
    killed = task(MIB, 10 * MIB, 60)
    assert killed.stdout is not None
    spill_directory = killed.stdout.readline().strip()
    killed.kill()
    killed.wait()
    killed.stdout.close()
    assert spill_directory in {str(path) for path in local_dirs.iterdir()}
    with workspace(MIB, MIB) as space:
        assert space.directory.startswith(str(local_dirs))
        assert spill_directory not in {str(path) for path in local_dirs.iterdir()}
    assert [path.name for path in local_dirs.iterdir()] == ["penstock-duckdb.ledger"]


@pytest.mark.usefixtures("local_dirs")
def test_eight_tasks_stay_within_the_budget() -> None:
    budget = 300 * MIB
    tasks = [task(100 * MIB, budget, 0.3) for _ in range(8)]
    spans = [json.loads(process.communicate()[0].splitlines()[1]) for process in tasks]
    changes = sorted(change for begin, end, memory in spans for change in ((begin, memory), (end, -memory)))
    used, peak = 0, 0
    for (_, memory), _ in pairwise([*changes, (time.time(), 0)]):
        used += memory
        peak = max(peak, used)
    assert len(spans) == 8
    assert 200 * MIB <= peak <= budget


STATEMENTS = {
    "another file": "SELECT * FROM read_parquet('{other}')",
    "a pattern": "SELECT * FROM glob('{folder}/*')",
    "a written file": "COPY (SELECT 1) TO '{folder}/written.csv'",
    "a database": "ATTACH '{folder}/new.db'",
    "a setting": "SET memory_limit = '1GB'",
    "external access": "SET enable_external_access = true",
    "an extension": "INSTALL httpfs",
}


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.usefixtures("local_dirs")
def test_duckdb_reaches_the_files_of_its_query_only(tmp_path: Path, name: str) -> None:
    for file in ("it's mine", "other"):
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / f"{file}.parquet")
    mine = str(tmp_path / "it's mine.parquet")
    quoted = mine.replace("'", "''")
    with open_connection(64 * MIB, files=[mine]) as connection:
        assert connection.execute(f"SELECT sum(a) FROM read_parquet('{quoted}')").fetchone() == (3,)
    statement = STATEMENTS[name].format(other=tmp_path / "other.parquet", folder=tmp_path)
    with pytest.raises(NotNativeError), open_connection(64 * MIB, files=[mine]) as connection:
        connection.execute(statement)


@pytest.mark.usefixtures("local_dirs")
def test_pyarrow_of_the_process_keeps_its_threads() -> None:
    before = pa.cpu_count()
    with open_connection(64 * MIB, 1):
        assert pa.cpu_count() == before


SPILLING = "SELECT count(*) FROM (SELECT md5(range::VARCHAR) AS text, count(*) FROM range(1_000_000) GROUP BY text)"


def test_a_spill_that_is_larger_than_its_share_of_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_file_system(tmp_path / "small", 24) as folder:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
        with (
            pytest.raises(NotNativeError, match="max_temp_directory_size") as error,
            open_connection(32 * MIB) as connection,
        ):
            connection.execute(SPILLING)
        used = re.search(r"\(([\d.]+) MiB/([\d.]+) MiB used\)", str(error.value))
        assert used is not None, error.value
        assert 6 < float(used[1]) <= float(used[2]) <= 12
        assert [path.name for path in folder.iterdir()] == ["penstock-duckdb.ledger"]


def test_a_spill_on_a_disk_that_others_fill_up_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_file_system(tmp_path / "small", 64) as folder:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))

        def fill() -> None:
            while not any(file.stat().st_blocks for file in folder.glob("*/*")):  # until DuckDB spills
                time.sleep(0.001)
            with suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * MIB)

        other = threading.Thread(target=fill, daemon=True)
        other.start()
        with pytest.raises(NotNativeError, match="No space left"), open_connection(32 * MIB) as connection:
            connection.execute(SPILLING)
        other.join()
        assert sorted(path.name for path in folder.iterdir()) == ["filler", "penstock-duckdb.ledger"]


@pytest.mark.usefixtures("local_dirs")
def test_the_spill_fits_on_a_larger_disk() -> None:
    with open_connection(32 * MIB) as connection:
        assert connection.execute(SPILLING).fetchone() == (1_000_000,)
