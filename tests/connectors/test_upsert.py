"""Upserts of several processes into one table at a time: each key has one row, and no write is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services import needed_module

needed_module("deltalake", "delta")
needed_module("pyiceberg", "iceberg")

from pyspark.sql.types import ArrayType, DoubleType, LongType, MapType, StringType, StructField, StructType

from penstock.connectors.upsert import Key
from penstock.errors import SinkError

JOBS = Path(__file__).parent.parent / "jobs"
STEPS = ["write", "check", "files_with", "merged"]
"""Of an upsert, in this order: each starts a Spark job."""
TIMES = 4
CODE = {
    "delta": "import deltalake; read = deltalake.DeltaTable(folder + '/t').to_pyarrow_table(); versions = deltalake.DeltaTable(folder + '/t').version() + 1",
    "iceberg": "from pyiceberg.catalog import load_catalog; table = load_catalog('default', type='sql', uri=f'sqlite:///{folder}/catalog.db', warehouse=f'file://{folder}').load_table('n.t'); read = table.scan().to_arrow(); versions = len(table.snapshots())",
}


def found_by(kind: str, folder: Path) -> tuple[list[tuple[int, str]], int]:
    """Return the rows, and how many versions there are; by a process of its own, as this one forks in other tests.

    It ends at once: threads of deltalake and pyarrow sometimes abort a process that takes leave of them.
    """
    told = "print(repr((list(zip(read['id'].to_pylist(), read['text'].to_pylist())), versions)), flush=True)"
    code = f"import os; folder = {str(folder)!r}; {CODE[kind]}; {told}; os._exit(0)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    rows, versions = eval(done.stdout)
    return sorted(rows), versions


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_two_processes_at_one_table(tmp_path: Path, kind: str) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, str(JOBS / "upserting.py"), kind, str(tmp_path), str(writer), str(TIMES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for writer in (0, 1)
    ]
    told = [writer.communicate(timeout=240)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], told
    rows, versions = found_by(kind, tmp_path)
    last = f"-{TIMES - 1}"
    own = [(100 * (writer + 1) + n, f"{writer}{last}") for writer in (0, 1) for n in range(10)]
    new = [(1000 * (writer + 1) + number, f"{writer}-{number}") for writer in (0, 1) for number in range(TIMES)]
    assert rows[10:] == sorted(own + new)
    assert [n for n, _ in rows[:10]] == list(range(10))
    assert {text for _, text in rows[:10]} in ({f"0{last}"}, {f"1{last}"}), "the rows of one commit stay together"
    assert versions == 2 * TIMES


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_killed_while_spark_works(tmp_path: Path, kind: str) -> None:
    """In each Spark job of an upsert: the table is as it was, and the next upsert is not disturbed."""

    def run(step: str) -> int:
        command = [sys.executable, str(JOBS / "killed_upsert.py"), kind, str(tmp_path), step]
        return subprocess.run(command, check=False, timeout=120).returncode

    assert run("first") == 0
    old = [(n, f"old {n}") for n in range(1000)]
    for step in STEPS:
        assert run(step) == -signal.SIGKILL, step
        assert found_by(kind, tmp_path) == (old, 1), step
    assert run("none") == 0
    new = [(n, f"new {n}") for n in range(500, 1500)]
    rows, versions = found_by(kind, tmp_path)
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
    ("given", "is_case_sensitive", "wanted"),
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
def test_columns_of_a_key(given: list[str], is_case_sensitive: bool, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        assert Key.of(given, COLUMNS, "table t", case_sensitive=is_case_sensitive).columns == wanted
    else:
        with pytest.raises(SinkError, match=wanted):
            Key.of(given, COLUMNS, "table t", case_sensitive=is_case_sensitive)
