"""Concurrent upserts into a table: each key has a single row, and no write is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import TESTS
from tests.support.services import require_module

require_module("deltalake", "delta")
require_module("pyiceberg", "iceberg")

from pyspark.sql.types import ArrayType, DoubleType, LongType, MapType, StringType, StructField, StructType

from penstock.connectors.tables.commit import Key
from penstock.errors import SinkError

JOBS = TESTS / "jobs"
STEPS = ["write", "check", "paths_with_keys", "merge"]
"""The steps of an upsert that start a Spark job, in order."""
TIMES = 4
CODE = {
    "delta": "import deltalake; read = deltalake.DeltaTable(folder + '/t').to_pyarrow_table(); versions = deltalake.DeltaTable(folder + '/t').version() + 1",
    "iceberg": "from pyiceberg.catalog import load_catalog; table = load_catalog('default', type='sql', uri=f'sqlite:///{folder}/catalog.db', warehouse=f'file://{folder}').load_table('n.t'); read = table.scan().to_arrow(); versions = len(table.snapshots())",
}


def read_table(kind: str, folder: Path) -> tuple[list[tuple[int, str]], int]:
    """Return the sorted rows and the number of versions of a table.

    A subprocess reads it, because this process forks in other tests. The subprocess leaves with `os._exit`, because
    threads of deltalake and pyarrow sometimes abort a process at its exit.
    """
    report = "print(repr((list(zip(read['id'].to_pylist(), read['text'].to_pylist())), versions)), flush=True)"
    code = f"import os; folder = {str(folder)!r}; {CODE[kind]}; {report}; os._exit(0)"
    process = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    rows, versions = eval(process.stdout)
    return sorted(rows), versions


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_concurrent_upserts_of_two_processes_lose_no_row(tmp_path: Path, kind: str) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, str(JOBS / "concurrent_upserts.py"), kind, str(tmp_path), str(writer), str(TIMES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for writer in (0, 1)
    ]
    outputs = [writer.communicate(timeout=240)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], outputs
    rows, versions = read_table(kind, tmp_path)
    last_suffix = f"-{TIMES - 1}"
    own_rows = [(100 * (writer + 1) + n, f"{writer}{last_suffix}") for writer in (0, 1) for n in range(10)]
    new_rows = [(1000 * (writer + 1) + number, f"{writer}-{number}") for writer in (0, 1) for number in range(TIMES)]
    assert rows[10:] == sorted(own_rows + new_rows)
    assert [n for n, _ in rows[:10]] == list(range(10))
    assert {text for _, text in rows[:10]} in ({f"0{last_suffix}"}, {f"1{last_suffix}"}), (
        "shared rows come from a single commit"
    )
    assert versions == 2 * TIMES


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_killed_upsert_changes_nothing(tmp_path: Path, kind: str) -> None:
    """A kill in any Spark job of an upsert leaves the table unchanged, and the next upsert succeeds."""

    def run(step: str) -> int:
        command = [sys.executable, str(JOBS / "killed_upsert.py"), kind, str(tmp_path), step]
        return subprocess.run(command, check=False, timeout=120).returncode

    assert run("first") == 0
    old = [(n, f"old {n}") for n in range(1000)]
    for step in STEPS:
        assert run(step) == -signal.SIGKILL, step
        assert read_table(kind, tmp_path) == (old, 1), step
    assert run("none") == 0
    new = [(n, f"new {n}") for n in range(500, 1500)]
    rows, versions = read_table(kind, tmp_path)
    assert rows == old[:500] + new
    assert versions == 2


COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("Name", StringType()),
        StructField("list", ArrayType(LongType())),
        StructField("map", MapType(StringType(), LongType())),
        StructField("price", DoubleType()),
    ]
)


@pytest.mark.parametrize(
    ("key_columns", "is_case_sensitive", "expected"),
    [
        (["id"], False, ("id",)),
        (["name", "ID"], False, ("Name", "id")),
        (["price"], False, ("price",)),
        (["name"], True, "a column name that the table does not have"),
        (["none"], False, "a column none that the table does not have"),
        (["id", "id"], False, "a column id twice"),
        (["list"], False, "cannot be part of a key"),
        (["map"], False, "cannot be part of a key"),
    ],
)
def test_key_columns_are_resolved_and_checked(key_columns: list[str], is_case_sensitive: bool, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert Key.of(key_columns, COLUMNS, "table t", case_sensitive=is_case_sensitive).columns == expected
    else:
        with pytest.raises(SinkError, match=expected):
            Key.of(key_columns, COLUMNS, "table t", case_sensitive=is_case_sensitive)
