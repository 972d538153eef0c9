"""Starting a query sets, keeps, refuses or changes the number of key groups."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.dataframes import with_settings
from penstock.spark.filesystem import Folder
from penstock.state import starting
from penstock.state.journal import Journal
from penstock.state.marker import MARKER
from penstock.state.progress_files import PROGRESS
from penstock.streams.reading import LocalPlace, read_progress
from tests.state.processes import named_in
from tests.state.queries import BASE, SCHEMA, run
from tests.state.test_bad_input import digest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def start(spark: SparkSession, one: Any, checkpoint: Any, **options: Any) -> Any:
    given = []
    with with_settings(spark, BASE | {"spark.sql.shuffle.partitions": "7"}):
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(one.input / "*.parquet"))
        writer = one.query.build(source).writeStream.outputMode(one.query.mode).trigger(availableNow=True)
        writer = writer.foreachBatch(lambda df, _: given.append(sorted(map(tuple, df.collect()), key=str)))
        query = st.start_query(writer, str(checkpoint), config=options, spark=spark)
        query.awaitTermination()
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7", "the session keeps its own setting"
    return given


def groups(spark: SparkSession, checkpoint: Any) -> int | None:
    return st.inspect(str(checkpoint), spark=spark).max_parallelism


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"pipeline.max-parallelism": 3}, 3),
        ({"parallelism.default": 2, "pipeline.max-parallelism": 5}, 5),
    ],
)
def test_the_first_start_sets_the_number(
    spark: SparkSession, stopped: Any, tmp_path: Path, options: dict[str, Any], expected: int
) -> None:
    start(spark, stopped("counts updated"), tmp_path / "checkpoint", **options)
    assert groups(spark, tmp_path / "checkpoint") == expected


@pytest.mark.thorough
@pytest.mark.parametrize(("options", "parallelism"), [({}, 2), ({"parallelism.default": 100}, 100)])
def test_a_first_start_without_a_number_derives_it_from_the_parallelism(
    spark: SparkSession,
    stopped: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    parallelism: int,
) -> None:
    """The session has two cores. At least 128 state partitions would take long: the last step is made smaller."""
    asked = []
    real = starting.default_max_parallelism

    def smaller(given: int) -> int:
        asked.append(given)
        return real(given) // 32

    monkeypatch.setattr(starting, "default_max_parallelism", smaller)
    start(spark, stopped("counts updated"), tmp_path / "checkpoint", **options)
    assert asked == [parallelism]
    assert groups(spark, tmp_path / "checkpoint") == {2: 128, 100: 256}[parallelism] // 32


@pytest.fixture
def checkpoint(stopped: Any, tmp_path: Path) -> Any:
    shutil.copytree(stopped("counts updated").checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_the_number_of_the_state_is_kept_where_none_is_asked_for(
    spark: SparkSession, stopped: Any, checkpoint: Any
) -> None:
    one = stopped("counts updated")
    assert start(spark, one, checkpoint) == one.later
    assert groups(spark, checkpoint) == 4


def test_another_number_is_refused_with_both(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    with pytest.raises(StateError, match=r"max parallelism 4, and the query asks for 8"):
        start(spark, stopped("counts updated"), checkpoint, **{"pipeline.max-parallelism": 8})


def test_another_number_is_rescaled_to_where_that_is_wanted(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    one = stopped("counts updated")
    options = {"pipeline.max-parallelism": 8, "state.rescale-on-restart": True}
    assert start(spark, one, checkpoint, **options) == one.later
    assert groups(spark, checkpoint) == 8
    assert st.rescale(str(checkpoint), 2, spark=spark).new == 2, "a query of this process that has ended is no obstacle"


@pytest.mark.thorough
def test_a_process_that_runs_the_query_is_an_obstacle(spark: SparkSession, checkpoint: Any) -> None:
    with (
        named_in(checkpoint / MARKER) as other,
        pytest.raises(StateError, match=f"process {other.pid} on .* runs a query on it"),
    ):
        st.rescale(str(checkpoint), 8, spark=spark)
    assert st.rescale(str(checkpoint), 8, spark=spark).new == 8


@pytest.mark.thorough
def test_a_query_that_another_process_runs_is_not_started(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    one = stopped("counts updated")
    with named_in(checkpoint / MARKER) as other:
        before = digest(checkpoint)
        with pytest.raises(StateError, match=f"runs already, and was not started again(?s:.*)process {other.pid} on"):
            start(spark, one, checkpoint)
        assert digest(checkpoint) == before
    assert start(spark, one, checkpoint) == one.later


def test_a_start_that_fails_leaves_no_mark(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    with pytest.raises(StateError, match="asks for 8"):
        start(spark, stopped("counts updated"), checkpoint, **{"pipeline.max-parallelism": 8})
    assert not (checkpoint / MARKER).exists()


@pytest.mark.thorough
def test_a_batch_that_was_not_finished_is_finished_before_a_rescale(
    spark: SparkSession, stopped: Any, checkpoint: Any
) -> None:
    """So does a process end that is killed: the next start must not need anybody's hand."""
    one = stopped("counts updated")
    repeated = run(spark, one.query, one.input, checkpoint)[-1]
    last = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    for file in (checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()
    options = {"pipeline.max-parallelism": 8, "state.rescale-on-restart": True}
    assert start(spark, one, checkpoint, **options) == [repeated], "it ended with that batch"
    assert start(spark, one, checkpoint, **options) == []
    assert groups(spark, checkpoint) == 8
    assert st.inspect(str(checkpoint), count=True, spark=spark).stores[0].total_rows == 200


@pytest.mark.thorough
def test_a_rescale_is_complete_where_only_its_leftovers_cannot_be_removed(
    spark: SparkSession,
    stopped: Any,
    checkpoint: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    commits, delete = len(list((checkpoint / "commits").glob("[0-9]*"))), Folder.delete

    def refuses(folder: Folder) -> None:
        if "_penstock_rescale" in str(folder) and len(list((checkpoint / "commits").glob("[0-9]*"))) > commits:
            raise OSError("the disk is read-only")
        delete(folder)

    monkeypatch.setattr(Folder, "delete", refuses)
    assert st.rescale(str(checkpoint), 8, spark=spark).new == 8
    assert "is not removed yet (the disk is read-only)" in caplog.text
    monkeypatch.undo()
    one = stopped("counts updated")
    assert start(spark, one, checkpoint) == one.later
    assert not (checkpoint / "_penstock_rescale").exists()


@pytest.mark.thorough
def test_leftovers_of_a_rescale_harm_no_state_however_long_the_query_went_on(
    spark: SparkSession, stopped: Any, checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain Spark runs it until its logs know nothing of the rescale any more."""
    one, work, kept = stopped("counts updated"), checkpoint / "_penstock_rescale", checkpoint.parent / "kept"
    forget = Journal.forget

    def refuses(folder: Folder) -> None:
        if (checkpoint / "commits/2").exists():
            raise OSError("the disk is read-only")
        forget(folder)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "forget", refuses)
        st.rescale(str(checkpoint), 8, spark=spark)
    shutil.copytree(work, kept)
    assert st.prune(str(checkpoint), spark=spark) == [], "a rescale that is complete is no obstacle"
    assert st.plan(str(checkpoint), 16, spark=spark).assignment.old == 8
    with with_settings(spark, {"spark.sql.streaming.minBatchesToRetain": "1"}):
        assert run(spark, one.query, one.input, checkpoint) == one.later
    assert not (checkpoint / "commits/2").exists()
    with pytest.raises(StateError, match="is complete and cannot be aborted"):
        st.abort(str(checkpoint), spark=spark)
    shutil.copytree(kept, work)
    assert st.rescale(str(checkpoint), 8, spark=spark) is None
    shutil.copytree(kept, work)
    assert start(spark, one, checkpoint) == []
    assert groups(spark, checkpoint) == 8
    assert st.inspect(str(checkpoint), count=True, spark=spark).stores[0].total_rows == 200
    assert not work.exists()
    shutil.copytree(kept, work)
    report = st.rescale(str(checkpoint), 2, spark=spark)
    assert (report.old, report.new) == (8, 2)
    assert not work.exists()


def test_the_progress_is_recorded(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    one = stopped("counts updated")
    start(spark, one, tmp_path / "checkpoint", **{"pipeline.max-parallelism": 3})
    folder = tmp_path / "checkpoint" / PROGRESS
    until = time.monotonic() + 20
    while not folder.exists() or {path.name for path in folder.glob("*.json")} < {"0.json", "1.json"}:
        assert time.monotonic() < until, "Spark tells the progress a little later"
        time.sleep(0.05)
    batches = read_progress(LocalPlace(tmp_path / "checkpoint"))
    assert [batch.batch for batch in batches] == list(range(len(batches)))
    assert all(batch.rows > 0 and batch.seconds > 0 and batch.cores == 2 for batch in batches)
    assert {state.partitions for batch in batches for state in batch.state} == {3}
