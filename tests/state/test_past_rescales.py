"""A query whose logs are rewound to a batch before a rescale loses no keys."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.errors import StateError
from penstock.state.journal import RECORDS_FOLDER
from tests.state.queries import run
from tests.state.test_bad_input import digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["counts in memory", "changelog", pytest.param("counts updated", marks=pytest.mark.slow)])
def query(request: pytest.FixtureRequest, stopped: Any) -> Any:
    return stopped(request.param)


@pytest.fixture
def checkpoint(query: Any, tmp_path: Path) -> Path:
    shutil.copytree(query.checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def remove_batch(checkpoint: Path, batch: int) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log / str(batch)).unlink()
        (checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)


@pytest.mark.thorough
def test_a_rewound_query_is_refused_until_the_rescale_is_aborted(
    spark: SparkSession, query: Any, checkpoint: Path
) -> None:
    for number in (8, 16):
        report = st.rescale(str(checkpoint), number, spark=spark)
        assert report is not None
    for batch in (report.batch, report.batch - 1):
        remove_batch(checkpoint, batch)
    before = digest(checkpoint)
    for act in (
        lambda: st.rescale(str(checkpoint), 2, spark=spark),
        lambda: st.plan(str(checkpoint), 2, spark=spark),
        lambda: st.prune(str(checkpoint), spark=spark),
    ):
        with pytest.raises(StateError, match=f"before its rescale to 8 key groups in batch {batch}") as e:
            act()
        assert "--abort" in str(e.value)
    assert digest(checkpoint) == before
    assert st.abort(str(checkpoint), spark=spark)
    assert not st.abort(str(checkpoint), spark=spark)
    assert not (checkpoint / RECORDS_FOLDER).exists()
    assert run(spark, query.query, query.input, checkpoint) == query.later
    assert st.inspect(str(checkpoint), count=True, spark=spark).stores[0].total_rows == 200


@pytest.mark.thorough
def test_a_rescale_whose_batch_was_run_again_is_refused(spark: SparkSession, query: Any, checkpoint: Path) -> None:
    report = st.rescale(str(checkpoint), 8, spark=spark)
    assert report is not None
    remove_batch(checkpoint, report.batch)
    run(spark, query.query, query.input, checkpoint)
    with pytest.raises(StateError, match=f"batch {report.batch} was run again after the rescale"):
        st.rescale(str(checkpoint), 2, spark=spark)
    assert st.abort(str(checkpoint), spark=spark)
    assert st.plan(str(checkpoint), 2, spark=spark).assignment.new == 2


@pytest.mark.thorough
def test_records_of_batches_that_are_no_longer_in_the_logs_are_removed(
    spark: SparkSession, query: Any, checkpoint: Path
) -> None:
    first = st.rescale(str(checkpoint), 8, spark=spark)
    assert first is not None
    st.rescale(str(checkpoint), 4, spark=spark)
    assert len(list((checkpoint / RECORDS_FOLDER).glob("[0-9]*"))) == 2
    remove_batch(checkpoint, first.batch)  # as Spark removes old batches
    assert st.plan(str(checkpoint), 2, spark=spark).assignment.old == 4
    st.rescale(str(checkpoint), 2, spark=spark)
    assert [int(file.stem) for file in sorted((checkpoint / RECORDS_FOLDER).glob("[0-9]*"))] == [
        first.batch + 1,
        first.batch + 2,
    ]
