"""Tables of an embedded Hive metastore (Derby): inferred and actual parallelism, and partition commit.

All queries run in a single process, because Derby allows only one and the start of a metastore is slow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.paths import TESTS

JOB = TESTS / "jobs" / "hive_tables.py"
pytestmark = pytest.mark.thorough
# name: range of tasks, fragment of the reason
EXPECTED = {
    "text": (range(6, 17), "8 partitions"),
    "text, single partition": (range(1, 3), "1 partition of"),
    "text, filtered by a join": (range(1, 5), "2 partitions"),
    "text, few large tasks": (range(1, 2), "8 partitions"),
    "text, static": (range(3, 4), "fixed by the connector at 3"),
    "text, static, limited": (range(2, 3), "fixed by the connector at 2"),
    "text, static, limited behind a filter": (range(3, 4), "fixed by the connector at 3"),
    "text, none": (range(5, 6), "inference is off, so the default of 5 applies"),
    "text, scan.parallelism": (range(6, 7), "parallelism is set to 6"),
    "text without partitions": (range(2, 9), "1 partition of"),
    "parquet": (range(1, 17), "the source asks for"),
    "parquet, single partition": (range(1, 3), "2 files"),
    "parquet, filtered by a join": (range(1, 5), "4 files"),
    "parquet, static": (range(1, 4), "fixed by the connector at"),
    "parquet, none": (range(5, 6), "inference is off, so the default of 5 applies"),
}


READ_IN_PART = [
    f"{kind}, {part}" for kind in ("text", "parquet") for part in ("single partition", "filtered by a join")
]
NEEDED = {
    "test_an_empty_table_gives_a_row_of_a_global_aggregate": ["text, empty"],
    "test_pruned_partitions_are_not_read": ["text, few large tasks", "parquet", *READ_IN_PART],
}
"""The queries of tests without a parameter."""


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The job's results for the queries that the selected tests need."""
    tests = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    queries = {
        str(test.callspec.params["name"])
        for test in tests
        if test.originalname == "test_scans_of_hive_tables_have_the_expected_parallelism"
    }
    queries.update(query for test in tests for query in NEEDED.get(test.originalname, []))
    process = subprocess.run(
        [sys.executable, JOB, str(tmp_path_factory.mktemp("hive")), *sorted(queries)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    (line,) = [line for line in process.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


@pytest.mark.parametrize("name", EXPECTED)
def test_scans_of_hive_tables_have_the_expected_parallelism(results: Any, name: str) -> None:
    result, (tasks, reason) = results[name], EXPECTED[name]
    assert result["same"]
    assert result["parallelism"] in tasks, result
    if result["tasks"] is None:  # a source with a single task is chained with its consumer
        assert result["parallelism"] == 1
    else:
        assert result["tasks"] == result["stage tasks"] == result["parallelism"]
    assert reason in result["reason"]


def test_an_empty_table_gives_a_row_of_a_global_aggregate(results: Any) -> None:
    assert results["text, empty"]["same"]
    assert results["text, empty"]["rows"] == 1


def test_pruned_partitions_are_not_read(results: Any) -> None:
    for kind in ("text", "parquet"):
        unpruned = results["text, few large tasks" if kind == "text" else "parquet"]["bytes"]
        assert results[f"{kind}, single partition"]["bytes"] < unpruned / 6
        assert results[f"{kind}, filtered by a join"]["bytes"] < unpruned / 3


def test_partition_commit_adds_partitions_to_the_metastore(results: Any) -> None:
    result = results["metastore"]
    assert result["partitions"] == [f"day=2024-01-0{day}" for day in range(1, 9)]
    assert result["rows"] == 40_000
    assert result["rows of a partition"] == 5_000
    assert result["markers"] == 8
    assert result["reason"] == "8 partitions: all files are visible; policies: metastore, success-file"
