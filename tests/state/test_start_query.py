"""`start_query` sets, retains, refuses or changes the number of key groups."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.dataframes import with_settings
from penstock.state import starting
from penstock.state.journal import Journal
from penstock.state.marker import MARKER_FILE
from penstock.state.progress_files import PROGRESS_FOLDER
from penstock.streams.reading import LocalTextFiles, read_progress
from tests.state.processes import named_in
from tests.state.queries import BASE, SCHEMA, run
from tests.state.test_bad_input import digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(spark: SparkSession, stopped_query: Any, checkpoint: Any, **options: Any) -> Any:
    batches = []
    with with_settings(spark, BASE | {"spark.sql.shuffle.partitions": "7"}):
        source = (
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(stopped_query.input / "*.parquet"))
        )
        query = stopped_query.query
        writer = query.build(source).writeStream.outputMode(query.mode).trigger(availableNow=True)
        writer = writer.foreachBatch(lambda df, _: batches.append(sorted(map(tuple, df.collect()), key=str)))
        st.start_query(writer, str(checkpoint), config=options, spark=spark).awaitTermination()
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7", "the setting of the session does not change"
    return batches


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
    """The session has two cores. The result is divided by 32, as 128 state partitions would take long."""
    parallelisms = []
    real = starting.default_max_parallelism

    def smaller(parallelism: int) -> int:
        parallelisms.append(parallelism)
        return real(parallelism) // 32

    monkeypatch.setattr(starting, "default_max_parallelism", smaller)
    start(spark, stopped("counts updated"), tmp_path / "checkpoint", **options)
    assert parallelisms == [parallelism]
    assert groups(spark, tmp_path / "checkpoint") == {2: 128, 100: 256}[parallelism] // 32


@pytest.fixture
def checkpoint(stopped: Any, tmp_path: Path) -> Any:
    shutil.copytree(stopped("counts updated").checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_start_without_a_number_retains_that_of_the_state(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    query = stopped("counts updated")
    assert start(spark, query, checkpoint) == query.later
    assert groups(spark, checkpoint) == 4


def test_another_number_is_refused_naming_both(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    with pytest.raises(StateError, match=r"max parallelism 4, and the query requests 8"):
        start(spark, stopped("counts updated"), checkpoint, **{"pipeline.max-parallelism": 8})


def test_another_number_is_rescaled_to_with_rescale_on_restart(
    spark: SparkSession, stopped: Any, checkpoint: Any
) -> None:
    query = stopped("counts updated")
    options = {"pipeline.max-parallelism": 8, "state.rescale-on-restart": True}
    assert start(spark, query, checkpoint, **options) == query.later
    assert groups(spark, checkpoint) == 8
    assert st.rescale(str(checkpoint), 2, spark=spark).new == 2, (
        "a query of this process that has ended does not prevent a rescale"
    )


@pytest.mark.thorough
def test_a_running_query_of_another_process_prevents_a_rescale(spark: SparkSession, checkpoint: Any) -> None:
    with (
        named_in(checkpoint / MARKER_FILE) as other,
        pytest.raises(StateError, match=f"process {other.pid} on .* runs a query on it"),
    ):
        st.rescale(str(checkpoint), 8, spark=spark)
    assert st.rescale(str(checkpoint), 8, spark=spark).new == 8


@pytest.mark.thorough
def test_a_query_that_another_process_runs_is_not_started(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    query = stopped("counts updated")
    with named_in(checkpoint / MARKER_FILE) as other:
        before = digest(checkpoint)
        with pytest.raises(
            StateError, match=f"is running already, and was not started again(?s:.*)process {other.pid} on"
        ):
            start(spark, query, checkpoint)
        assert digest(checkpoint) == before
    assert start(spark, query, checkpoint) == query.later


def test_a_start_that_fails_leaves_no_mark(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    with pytest.raises(StateError, match="requests 8"):
        start(spark, stopped("counts updated"), checkpoint, **{"pipeline.max-parallelism": 8})
    assert not (checkpoint / MARKER_FILE).exists()


@pytest.mark.thorough
def test_an_unfinished_batch_is_finished_before_a_rescale(spark: SparkSession, stopped: Any, checkpoint: Any) -> None:
    """A killed process leaves such a batch; the next start must not need manual work."""
    query = stopped("counts updated")
    repeated = run(spark, query.query, query.input, checkpoint)[-1]
    last = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    for file in (checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()
    options = {"pipeline.max-parallelism": 8, "state.rescale-on-restart": True}
    assert start(spark, query, checkpoint, **options) == [repeated], "it ended with that batch"
    assert start(spark, query, checkpoint, **options) == []
    assert groups(spark, checkpoint) == 8
    assert st.inspect(str(checkpoint), count=True, spark=spark).stores[0].total_rows == 200


@pytest.mark.thorough
def test_a_rescale_is_complete_if_only_its_staging_folder_cannot_be_removed(
    spark: SparkSession,
    stopped: Any,
    checkpoint: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    commits, delete = len(list((checkpoint / "commits").glob("[0-9]*"))), HadoopPath.delete

    def refuse(folder: HadoopPath) -> None:
        if "_penstock_rescale" in str(folder) and len(list((checkpoint / "commits").glob("[0-9]*"))) > commits:
            raise OSError("the disk is read-only")
        delete(folder)

    monkeypatch.setattr(HadoopPath, "delete", refuse)
    assert st.rescale(str(checkpoint), 8, spark=spark).new == 8
    assert "is not removed yet (the disk is read-only)" in caplog.text
    monkeypatch.undo()
    query = stopped("counts updated")
    assert start(spark, query, checkpoint) == query.later
    assert not (checkpoint / "_penstock_rescale").exists()


@pytest.mark.thorough
def test_a_leftover_staging_folder_does_not_change_the_state(
    spark: SparkSession, stopped: Any, checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain Spark runs the query until its logs no longer contain the rescale."""
    query, work = stopped("counts updated"), checkpoint / "_penstock_rescale"
    copy = checkpoint.parent / "copy"
    delete = Journal.delete

    def refuse(folder: HadoopPath) -> None:
        if (checkpoint / "commits/2").exists():
            raise OSError("the disk is read-only")
        delete(folder)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "delete", refuse)
        st.rescale(str(checkpoint), 8, spark=spark)
    shutil.copytree(work, copy)
    assert st.prune(str(checkpoint), spark=spark) == [], "a complete rescale does not prevent it"
    assert st.plan(str(checkpoint), 16, spark=spark).assignment.old == 8
    with with_settings(spark, {"spark.sql.streaming.minBatchesToRetain": "1"}):
        assert run(spark, query.query, query.input, checkpoint) == query.later
    assert not (checkpoint / "commits/2").exists()
    with pytest.raises(StateError, match="is complete and cannot be aborted"):
        st.abort(str(checkpoint), spark=spark)
    shutil.copytree(copy, work)
    assert st.rescale(str(checkpoint), 8, spark=spark) is None
    shutil.copytree(copy, work)
    assert start(spark, query, checkpoint) == []
    assert groups(spark, checkpoint) == 8
    assert st.inspect(str(checkpoint), count=True, spark=spark).stores[0].total_rows == 200
    assert not work.exists()
    shutil.copytree(copy, work)
    report = st.rescale(str(checkpoint), 2, spark=spark)
    assert (report.old, report.new) == (8, 2)
    assert not work.exists()


def test_the_progress_is_recorded(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    query = stopped("counts updated")
    start(spark, query, tmp_path / "checkpoint", **{"pipeline.max-parallelism": 3})
    folder = tmp_path / "checkpoint" / PROGRESS_FOLDER
    deadline = time.monotonic() + 20
    while not folder.exists() or {path.name for path in folder.glob("*.json")} < {"0.json", "1.json"}:
        assert time.monotonic() < deadline, "Spark reports the progress with a delay"
        time.sleep(0.05)
    batches = read_progress(LocalTextFiles(tmp_path / "checkpoint"))
    assert [batch.batch for batch in batches] == list(range(len(batches)))
    assert all(batch.rows > 0 and batch.seconds > 0 and batch.cores == 2 for batch in batches)
    assert {state.partitions for batch in batches for state in batch.state} == {3}
