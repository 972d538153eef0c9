"""Operators: the output after a rescale equals that without, for every change and every method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.spark.plans.dataframes import with_settings
from tests.state.changes import ALL, cases, check_output_after_rescale, rescaled
from tests.state.queries import BASE, OPERATORS, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CASES = cases(OPERATORS, ALL)


@pytest.mark.parametrize(("name", "method", "numbers"), CASES)
def test_later_output_is_the_same(
    spark: SparkSession, stopped: Any, tmp_path: Path, name: Any, method: Any, numbers: Any
) -> None:
    check_output_after_rescale(spark, stopped(name), tmp_path / "checkpoint", numbers, method)


def test_the_state_has_the_new_number_of_groups(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    query = stopped("counts updated")
    rescaled(spark, query, tmp_path / "checkpoint", (8,), None)
    assert sorted(int(p.name) for p in (tmp_path / "checkpoint/state/0").iterdir() if p.name.isdigit()) == list(
        range(8)
    )
    before, after = (st.inspect(str(p), count=True, spark=spark) for p in (query.checkpoint, tmp_path / "checkpoint"))
    assert (before.max_parallelism, after.max_parallelism) == (4, 8)
    assert before.stores[0].total_rows == after.stores[0].total_rows == 200
    assert [sum(after.stores[0].rows[k::4]) for k in range(4)] == list(before.stores[0].rows)
    metadata = spark.read.format("state-metadata").load(str(tmp_path / "checkpoint"))
    assert metadata.first()["numPartitions"] == 8


@pytest.mark.thorough
def test_earlier_batches_can_still_be_read(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    query = stopped("counts updated")
    rescaled(spark, query, tmp_path / "checkpoint", (8,), None)
    with with_settings(spark, BASE):
        for batch in (0, 1, 2):
            state = spark.read.format("statestore").option("batchId", batch).load(str(tmp_path / "checkpoint"))
            assert state.count() == 200


@pytest.mark.thorough
def test_dropped_groups_are_removed_only_by_prune(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    query = stopped("counts updated")
    rescaled(spark, query, tmp_path / "checkpoint", (2,), None)
    groups = tmp_path / "checkpoint/state/0"
    assert (groups / "3").exists()
    assert st.prune(str(tmp_path / "checkpoint"), spark=spark) == ["state/0/2", "state/0/3"]
    assert not (groups / "3").exists()
    assert run(spark, query.query, query.input, tmp_path / "checkpoint") == query.later
