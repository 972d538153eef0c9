"""Tables of an embedded Hive metastore (Derby): what is inferred, what runs, and the metastore's partition commit.

One process for all, as Derby admits only one and the first calls of a metastore take most of the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).parent.parent / "jobs" / "hive_tables.py"
# name: tasks, what the reason says
EXPECTED = {
    "text": (range(6, 17), "8 partitions"),
    "text, one partition": (range(1, 3), "1 partition of"),
    "text, filtered by a join": (range(1, 5), "2 partitions"),
    "text, few large tasks": (range(1, 2), "8 partitions"),
    "text, static": (range(3, 4), "fixed by the connector at 3"),
    "text, static, limited": (range(2, 3), "fixed by the connector at 2"),
    "text, static, limited behind a filter": (range(3, 4), "fixed by the connector at 3"),
    "text, none": (range(5, 6), "inference is off, so the default of 5 applies"),
    "text, scan.parallelism": (range(6, 7), "parallelism is set to 6"),
    "text without partitions": (range(2, 9), "1 partition of"),
    "parquet": (range(1, 17), "the source asks for"),
    "parquet, one partition": (range(1, 3), "2 files"),
    "parquet, filtered by a join": (range(1, 5), "4 files"),
    "parquet, static": (range(1, 4), "fixed by the connector at"),
    "parquet, none": (range(5, 6), "inference is off, so the default of 5 applies"),
}


READ_IN_PART = [f"{kind}, {part}" for kind in ("text", "parquet") for part in ("one partition", "filtered by a join")]
NEEDED = {
    "test_an_empty_table": ["text, empty"],
    "test_less_is_read_where_partitions_are_ruled_out": ["text, few large tasks", "parquet", *READ_IN_PART],
}
"""The queries that tests without a parameter look at."""


@pytest.fixture(scope="module")
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the job says of each query that a selected test looks at."""
    tests = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    queries = {str(test.callspec.params["name"]) for test in tests if test.originalname == "test_scans"}
    queries.update(query for test in tests for query in NEEDED.get(test.originalname, []))
    done = subprocess.run(
        [sys.executable, JOB, str(tmp_path_factory.mktemp("hive")), *sorted(queries)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    return json.loads(line.removeprefix("SAID "))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", EXPECTED)
def test_scans(said: Any, name: str) -> None:
    found, (tasks, reason) = said[name], EXPECTED[name]
    assert found["same"]
    assert found["parallelism"] in tasks, found
    if found["tasks"] is None:  # what one task reads is not run by itself, but with what reads it
        assert found["parallelism"] == 1
    else:
        assert found["tasks"] == found["ran"] == found["parallelism"]
    assert reason in found["reason"]


def test_an_empty_table(said: Any) -> None:
    assert said["text, empty"]["same"]
    assert said["text, empty"]["rows"] == 1


@pytest.mark.thorough
def test_less_is_read_where_partitions_are_ruled_out(said: Any) -> None:
    for kind in ("text", "parquet"):
        everything = said["text, few large tasks" if kind == "text" else "parquet"]["bytes"]
        assert said[f"{kind}, one partition"]["bytes"] < everything / 6
        assert said[f"{kind}, filtered by a join"]["bytes"] < everything / 3


def test_partitions_are_added_to_the_metastore(said: Any) -> None:
    found = said["metastore"]
    assert found["partitions"] == [f"day=2024-01-0{day}" for day in range(1, 9)]
    assert found["rows"] == 40_000
    assert found["of one"] == 5_000
    assert found["markers"] == 8
    assert found["reason"] == "8 partitions: all their files are visible: metastore, success-file"
