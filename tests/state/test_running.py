"""Rescales of a running query lose and repeat no rows, and leave it running if they fail."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.state.streaming_queries import stream_execution
from penstock.state import live_rescale
from penstock.state.journal import rescale_lock
from penstock.state.marker import MARKER_FILE
from penstock.state.requests import Requests
from penstock.state.rescale import Rescale
from tests.state.processes import named_in
from tests.state.queries import BASE, SCHEMA, add_file, run
from tests.state.test_bad_input import digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.state.running import RescalableQuery


class Live:
    """A query that runs in this process over files that are added step by step."""

    def __init__(self, spark: SparkSession, stopped_query: Any, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.input = folder / "in"
        self.input.mkdir()
        self.checkpoint = str(folder / "checkpoint")
        self.waiting = sorted(stopped_query.input.glob("*.parquet"))
        self.definition = stopped_query.query
        self.batches: list[list[tuple]] = []
        self.in_batch: Callable[[], object] = lambda: None
        self.add(2)
        self.query = self.start(**options)

    def writer(self) -> Any:
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = self.definition.build(source.parquet(str(self.input / "*.parquet")))
        return rows.writeStream.outputMode(self.definition.mode)

    def start(self, **config: Any) -> RescalableQuery:
        with with_settings(self.spark, BASE | self.definition.settings):
            return st.start_query(
                self.writer().foreachBatch(self._collect), self.checkpoint, config=config, spark=self.spark
            )

    def _collect(self, df: DataFrame, _: int) -> None:
        rows = sorted((tuple(row) for row in df.collect()), key=str)
        if rows:
            self.batches.append(rows)
        self.in_batch()

    def add(self, files: int) -> None:
        for _ in range(files):
            file = self.waiting.pop(0)
            add_file(file, self.input / file.name)


@pytest.fixture
def live(spark: SparkSession, stopped: Any, tmp_path: Path) -> Iterator[Live]:
    running = Live(spark, stopped("counts updated"), tmp_path, **{"pipeline.max-parallelism": 4})
    yield running
    running.query.stop()


@pytest.fixture(scope="module")
def expected(spark: SparkSession, stopped: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The output of the query without a rescale."""
    query = stopped("counts updated")
    return run(spark, query.query, query.input, tmp_path_factory.mktemp("twin") / "checkpoint")


def test_a_running_query_continues_with_another_number(live: Live, expected: Any) -> None:
    live.query.processAllAvailable()
    before, identity = live.query.runId, live.query.id
    waiter = threading.Thread(target=live.query.awaitTermination)
    waiter.start()
    report = live.query.rescale(8)
    assert (report.rescale.old, report.rescale.new) == (4, 8)
    assert live.query.runId != before
    assert live.query.id == identity
    assert st.inspect(live.checkpoint, spark=live.spark).max_parallelism == 8
    live.add(3)
    live.query.processAllAvailable()
    assert live.batches == expected
    assert waiter.is_alive()
    live.query.stop()
    waiter.join(10)
    assert not waiter.is_alive()
    assert not live.query.isActive


@pytest.mark.thorough
def test_the_running_batch_is_finished_first(live: Live, expected: Any) -> None:
    live.query.processAllAvailable()
    in_batch = threading.Event()

    def slowly() -> None:
        in_batch.set()
        time.sleep(1.5)

    live.in_batch = slowly  # after its rows were collected: an interrupted and repeated batch would repeat them
    live.add(1)
    assert in_batch.wait(20)
    report = live.query.rescale(6)
    assert report.seconds_to_end > 0.5
    live.in_batch = lambda: None
    live.add(2)
    live.query.processAllAvailable()
    assert live.batches == expected


@pytest.mark.slow
def test_a_rescale_does_not_wait_for_the_next_trigger(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    hourly = Live(spark, stopped("counts updated"), tmp_path, **{"pipeline.max-parallelism": 4})
    hourly.query.stop()
    with with_settings(spark, BASE):
        writer = hourly.writer().foreachBatch(hourly._collect).trigger(processingTime="1 hour")
        query = st.start_query(writer, hourly.checkpoint, spark=spark)
    try:
        deadline = time.monotonic() + 30
        while not hourly.batches:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)
        assert query.rescale(8).seconds_to_end < 5
        assert query.isActive
    finally:
        query.stop()


@pytest.mark.thorough
def test_a_refused_rescale_does_not_stop_the_query(live: Live) -> None:
    live.query.processAllAvailable()
    run_id = live.query.runId
    with pytest.raises(StateError, match="it already has 4 key groups"):
        live.query.rescale(4)
    with pytest.raises(StateError, match="it already has 4 key groups"):
        st.rescale_running(live.checkpoint, 4, spark=live.spark)
    bridge = Bridge(live.spark)
    with rescale_lock(bridge, HadoopPath(bridge, live.checkpoint)), pytest.raises(StateError, match="is under way"):
        live.query.rescale(8)
    assert live.query.runId == run_id


@pytest.mark.slow
def test_a_table_in_memory_does_not_survive_a_stop(live: Live, tmp_path: Path) -> None:
    with with_settings(live.spark, BASE):
        writer = live.writer().format("memory").queryName("in_memory")
        query = st.start_query(
            writer, str(tmp_path / "other"), config={"pipeline.max-parallelism": 4}, spark=live.spark
        )
    try:
        query.processAllAvailable()
        with pytest.raises(StateError, match="its sink is a table in memory"):
            query.rescale(8)
        assert query.isActive
    finally:
        query.stop()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "method", ["Rescale._stage_commit", pytest.param("HadoopPath.move_to", marks=pytest.mark.slow)]
)
def test_the_query_continues_unchanged_after_a_failed_rescale(
    live: Live, expected: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    owner = {"Rescale": Rescale, "HadoopPath": HadoopPath}[method.partition(".")[0]]

    def fail(*_: Any) -> None:
        raise OSError("the disk is gone")

    live.query.processAllAvailable()
    with monkeypatch.context() as patch:
        patch.setattr(owner, method.partition(".")[2], fail)
        with pytest.raises(StateError, match="the disk is gone") as raised:
            live.query.rescale(8)
    assert "was not rescaled: " in raised.value.message
    assert raised.value.hint == "the checkpoint is unchanged"
    assert st.inspect(live.checkpoint, spark=live.spark).max_parallelism == 4
    live.add(3)
    live.query.processAllAvailable()
    assert live.batches == expected
    assert live.query.rescale(8).rescale.new == 8, "nothing of the failed rescale is in the way"


@pytest.mark.thorough
def test_a_query_that_is_stopped_during_a_rescale_stays_stopped(live: Live) -> None:
    live.query.processAllAvailable()
    stopper = threading.Thread(target=live.query.stop)

    def stop(done: int, total: int, step: str) -> None:
        if step == "publishing the new state":
            stopper.start()
            assert live.query.stop_requested.wait(5)

    live.query.rescale(8, on_progress=stop)
    stopper.join(10)
    assert not live.query.isActive
    assert live.query.awaitTermination(5)


@pytest.mark.thorough
def test_on_progress_may_stop_the_query(live: Live) -> None:
    """`stop` does not wait for the rescale that calls it."""
    live.query.processAllAvailable()
    report = live.query.rescale(
        8, on_progress=lambda _, __, step: live.query.stop() if step == "publishing the new state" else None
    )
    assert report.rescale.new == 8
    assert not live.query.isActive
    assert live.query.awaitTermination(5)


@pytest.mark.thorough
def test_a_refused_start_does_not_remove_the_marker_of_the_running_query(live: Live) -> None:
    """Otherwise another process could start the query, and no process could request a rescale."""
    live.query.processAllAvailable()
    marker = Path(live.checkpoint, MARKER_FILE)
    before = marker.read_bytes()
    with pytest.raises(StateError, match="max parallelism 4"):
        live.start(**{"pipeline.max-parallelism": 8})
    assert live.query.isActive
    assert marker.read_bytes() == before
    assert st.rescale_running(live.checkpoint, 8, spark=live.spark)["rescale"]["new"] == 8


@pytest.mark.thorough
def test_a_query_that_another_caller_stops_in_a_batch_stays_stopped(live: Live) -> None:
    """A rescale interrupts no batch; an interrupted batch may still finish, as its Python code continues."""
    live.query.processAllAvailable()
    in_batch, may_end = threading.Event(), threading.Event()
    live.in_batch = lambda: (in_batch.set(), may_end.wait(60))
    live.add(1)
    assert in_batch.wait(20)
    (running,) = live.spark.streams.active
    refused: list[str] = []
    waits = threading.Event()

    def rescale() -> None:
        with pytest.raises(StateError) as raised:
            live.query.rescale(8, on_progress=lambda done, *_: waits.set() if done == 0 else None)
        refused.append(str(raised.value))

    rescaler = threading.Thread(target=rescale)
    rescaler.start()
    assert waits.wait(30), "the rescale waits for the end of its batch"
    time.sleep(0.5)
    threading.Timer(1, may_end.set).start()
    running.stop()
    rescaler.join(30)
    is_finished = Path(live.checkpoint, "commits/2").exists()
    assert ("by another caller" if is_finished else "in the middle of batch 2") in refused[0]
    assert not live.query.isActive
    assert live.query.awaitTermination(5)


@pytest.mark.thorough
def test_an_unfinished_batch_is_finished_before_a_rescale_at_the_start(live: Live, expected: Any) -> None:
    live.query.processAllAvailable()
    live.query.stop()
    for file in Path(live.checkpoint, "commits").glob("*1*"):
        file.unlink()
    live.query = live.start(**{"pipeline.max-parallelism": 8, "state.rescale-on-restart": True})
    assert st.inspect(live.checkpoint, spark=live.spark).max_parallelism == 8
    live.add(3)
    live.query.processAllAvailable()
    assert live.batches == [*expected[:2], *expected[1:]]


@pytest.mark.thorough
def test_a_restart_uses_the_settings_of_the_first_start(live: Live) -> None:
    live.query.processAllAvailable()
    zone = "spark.sql.session.timeZone"
    first = live.spark.conf.get(zone)
    with with_settings(live.spark, {zone: "Asia/Tokyo"}):
        live.query.rescale(8)
        assert live.spark.conf.get(zone) == "Asia/Tokyo"
    assert stream_execution(live.query).sparkSessionForStream().conf().get(zone) == first


@pytest.mark.thorough
def test_a_second_request_is_refused(live: Live, expected: Any) -> None:
    live.query.processAllAvailable()
    in_batch = threading.Event()

    def slowly() -> None:
        in_batch.set()
        time.sleep(2)

    live.in_batch = slowly
    live.add(1)
    assert in_batch.wait(20)
    answers = []
    first = threading.Thread(target=lambda: answers.append(st.rescale_running(live.checkpoint, 8, spark=live.spark)))
    first.start()
    while not (requests := Requests(HadoopPath(Bridge(live.spark), live.checkpoint))).current():
        time.sleep(0.05)
    with pytest.raises(StateError, match=r"a request of .* for 8 key groups is being served"):
        st.rescale_running(live.checkpoint, 2, spark=live.spark)
    live.in_batch = lambda: None
    first.join(30)
    assert answers[0]["rescale"]["new"] == 8
    assert requests.current() is None
    live.add(2)
    live.query.processAllAvailable()
    assert live.batches == expected


@pytest.mark.parametrize("marker", ["none", "of a dead process", "of a process without the query"])
def test_a_checkpoint_that_no_process_serves(
    spark: SparkSession, stopped: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    monkeypatch.setattr(live_rescale, "_ACCEPT_TIMEOUT", 1.0)
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(stopped("counts updated").checkpoint, checkpoint)
    if marker != "none":
        with named_in(checkpoint / MARKER_FILE):
            if marker == "of a process without the query":
                message = refused(spark, checkpoint)
    if marker != "of a process without the query":
        message = refused(spark, checkpoint)
    assert {"none": "there is no", "of a dead process": "has ended"}.get(marker, "accepts no requests") in message


def refused(spark: SparkSession, checkpoint: Path) -> str:
    """Request a rescale that no process serves, check that no file is left, and return the message."""
    before = digest(checkpoint)
    with pytest.raises(StateError, match="does not accept rescales") as raised:
        st.rescale_running(str(checkpoint), 8, spark=spark)
    assert digest(checkpoint) == before
    return str(raised.value)


def test_the_marker_is_removed_when_the_query_ends(live: Live, tmp_path: Path) -> None:
    assert (tmp_path / "checkpoint" / MARKER_FILE).exists()
    live.query.stop()
    deadline = time.monotonic() + 10
    while (tmp_path / "checkpoint" / MARKER_FILE).exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
