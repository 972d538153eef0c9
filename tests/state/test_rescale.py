"""A query that was rescaled goes on as its twin that was not: every kind of state, every change, every method."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.spark.dataframes import with_settings
from penstock.spark.jvm import Bridge
from penstock.spark.state_store import has_offline_tools
from penstock.state.rewrite_methods import RewriteMethod
from tests.state.queries import BASE, QUERIES, QUERIES_IN_MEMORY, Stopped, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Each change: the numbers of key groups one after the other from 4 on, and how.
QUICK = [
    ("counts updated", (8, 4), None),
    ("no key", (8,), None),
    ("format 2 with changelog", (12,), None),
    ("windows appended", (8,), RewriteMethod.ROWS),
    ("counts updated", (6,), RewriteMethod.SHUFFLE),
    ("counts in memory", (6,), None),
]
CHANGES = [
    (method, numbers)
    for method, all_numbers in (
        (None, [(8, 4), (6,), (12,)]),
        (RewriteMethod.ROWS, [(8,), (2,)]),
        (RewriteMethod.SHUFFLE, [(6,)]),
    )
    for numbers in all_numbers
]
IN_MEMORY = [(query.name, numbers, None) for query in QUERIES_IN_MEMORY for numbers in [(8, 4), (6,), (12,)]]
CASES = [pytest.param(*case, id=f"{case[0]}: 4 to {case[1]} {case[2] or 'chosen'}") for case in QUICK] + [
    pytest.param(
        query.name, numbers, method, marks=pytest.mark.slow, id=f"{query}: 4 to {numbers} {method or 'chosen'}"
    )
    for query in QUERIES
    for method, numbers in CHANGES
    if (query.name, numbers, method) not in QUICK
]
CASES += [
    pytest.param(*case, marks=pytest.mark.slow, id=f"{case[0]}: 4 to {case[1]}")
    for case in IN_MEMORY
    if case not in QUICK
]


def rescaled(
    spark: SparkSession, one: Stopped, folder: Path, numbers: tuple[int, ...], method: RewriteMethod | None
) -> list:
    """Copy a checkpoint and rescale it some times; return the reports."""
    shutil.copytree(one.checkpoint, folder)
    return [st.rescale(str(folder), number, spark=spark, method=method) for number in numbers]


@pytest.mark.parametrize(("name", "numbers", "method"), CASES)
def test_later_output_is_the_same(
    spark: SparkSession, stopped: Any, tmp_path: Path, name: Any, numbers: Any, method: Any
) -> None:
    rows_only = "in memory" in name or not has_offline_tools(Bridge(spark))
    if rows_only and method is not None and method is not RewriteMethod.ROWS:
        pytest.skip("this Spark has the method rows only")
    one = stopped(name)
    assert one.later, "a query that gives nothing later shows nothing"
    reports = rescaled(spark, one, tmp_path / "checkpoint", numbers, method)
    for report in reports:
        for store in report.stores:
            assert store.method == (method or (RewriteMethod.ROWS if rows_only else RewriteMethod.FILES))
    assert run(spark, one.query, one.input, tmp_path / "checkpoint") == one.later


def test_the_state_has_the_new_number_of_groups(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    one = stopped("counts updated")
    rescaled(spark, one, tmp_path / "checkpoint", (8,), None)
    assert sorted(int(p.name) for p in (tmp_path / "checkpoint/state/0").iterdir() if p.name.isdigit()) == list(
        range(8)
    )
    before, after = (st.inspect(str(p), count=True, spark=spark) for p in (one.checkpoint, tmp_path / "checkpoint"))
    assert (before.max_parallelism, after.max_parallelism) == (4, 8)
    assert before.stores[0].total_rows == after.stores[0].total_rows == 200
    assert [sum(after.stores[0].rows[k::4]) for k in range(4)] == list(before.stores[0].rows)
    metadata = spark.read.format("state-metadata").load(str(tmp_path / "checkpoint"))
    assert metadata.first()["numPartitions"] == 8


def test_earlier_batches_can_still_be_read(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    one = stopped("counts updated")
    rescaled(spark, one, tmp_path / "checkpoint", (8,), None)
    with with_settings(spark, BASE):
        for batch in (0, 1, 2):
            state = spark.read.format("statestore").option("batchId", batch).load(str(tmp_path / "checkpoint"))
            assert state.count() == 200


def test_dropped_groups_are_removed_on_demand_only(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    one = stopped("counts updated")
    rescaled(spark, one, tmp_path / "checkpoint", (2,), None)
    left = tmp_path / "checkpoint/state/0"
    assert (left / "3").exists()
    assert st.prune(str(tmp_path / "checkpoint"), spark=spark) == ["state/0/2", "state/0/3"]
    assert not (left / "3").exists()
    assert run(spark, one.query, one.input, tmp_path / "checkpoint") == one.later
