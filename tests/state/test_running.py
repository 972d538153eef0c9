"""A running query is rescaled: nothing is lost or repeated, and whatever goes wrong leaves it running."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.dataframes import with_settings
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge
from penstock.spark.streaming_queries import executing
from penstock.state import asking
from penstock.state.marker import MARKER
from penstock.state.requests import Requests
from penstock.state.rescale import Rescale
from penstock.state.turn import my_turn
from tests.state.processes import named_in
from tests.state.queries import BASE, SCHEMA, add_file, run
from tests.state.test_bad_input import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from penstock.state.running import RescalableQuery


class Live:
    """A query that runs in this process over files that are added one by one."""

    def __init__(self, spark: SparkSession, one: Any, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.input = folder / "in"
        self.input.mkdir()
        self.checkpoint = str(folder / "checkpoint")
        self.waiting = sorted(one.input.glob("*.parquet"))
        self.query_of = one.query
        self.batches: list[list[tuple]] = []
        self.in_batch: Callable[[], object] = lambda: None
        self.add(2)
        self.query = self.start(**options)

    def writer(self) -> Any:
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = self.query_of.build(source.parquet(str(self.input / "*.parquet")))
        return rows.writeStream.outputMode(self.query_of.mode)

    def start(self, **config: Any) -> RescalableQuery:
        with with_settings(self.spark, BASE | self.query_of.settings):
            return st.start_query(
                self.writer().foreachBatch(self._keep), self.checkpoint, config=config, spark=self.spark
            )

    def _keep(self, df: DataFrame, _: int) -> None:
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
    one = Live(spark, stopped("counts updated"), tmp_path, **{"pipeline.max-parallelism": 4})
    yield one
    one.query.stop()


@pytest.fixture(scope="module")
def expected(spark: SparkSession, stopped: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The output of the query that is left alone."""
    one = stopped("counts updated")
    return run(spark, one.query, one.input, tmp_path_factory.mktemp("twin") / "checkpoint")


def test_it_goes_on_with_another_number(live: Live, expected: Any) -> None:
    live.query.processAllAvailable()
    before, identity = live.query.runId, live.query.id
    waits = threading.Thread(target=live.query.awaitTermination)
    waits.start()
    report = live.query.rescale(8)
    assert (report.rescale.old, report.rescale.new) == (4, 8)
    assert live.query.runId != before
    assert live.query.id == identity
    assert st.inspect(live.checkpoint, spark=live.spark).max_parallelism == 8
    live.add(3)
    live.query.processAllAvailable()
    assert live.batches == expected
    assert waits.is_alive()
    live.query.stop()
    waits.join(10)
    assert not waits.is_alive()
    assert not live.query.isActive


@pytest.mark.thorough
def test_the_batch_that_runs_is_finished_first(live: Live, expected: Any) -> None:
    live.query.processAllAvailable()
    in_batch = threading.Event()

    def slowly() -> None:
        in_batch.set()
        time.sleep(1.5)

    live.in_batch = slowly  # the rows are kept before: a batch that is interrupted and repeated gives them twice
    live.add(1)
    assert in_batch.wait(20)
    report = live.query.rescale(6)
    assert report.seconds_to_end > 0.5
    live.in_batch = lambda: None
    live.add(2)
    live.query.processAllAvailable()
    assert live.batches == expected


@pytest.mark.slow
def test_the_next_batch_is_not_waited_for(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    hourly = Live(spark, stopped("counts updated"), tmp_path, **{"pipeline.max-parallelism": 4})
    hourly.query.stop()
    with with_settings(spark, BASE):
        writer = hourly.writer().foreachBatch(hourly._keep).trigger(processingTime="1 hour")
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
def test_what_is_refused_does_not_stop_the_query(live: Live) -> None:
    live.query.processAllAvailable()
    run_id = live.query.runId
    with pytest.raises(StateError, match="it already has 4 key groups"):
        live.query.rescale(4)
    with pytest.raises(StateError, match="it already has 4 key groups"):
        st.rescale_running(live.checkpoint, 4, spark=live.spark)
    bridge = Bridge(live.spark)
    with my_turn(bridge, Folder(bridge, live.checkpoint)), pytest.raises(StateError, match="is under way"):
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
@pytest.mark.parametrize("place", ["Rescale._commit_staged", pytest.param("Folder.move_to", marks=pytest.mark.slow)])
def test_a_rescale_that_fails_leaves_the_query_running_as_before(
    live: Live, expected: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    owner = {"Rescale": Rescale, "Folder": Folder}[place.partition(".")[0]]

    def fails(*_: Any) -> None:
        raise OSError("the disk is gone")

    live.query.processAllAvailable()
    with monkeypatch.context() as patch:
        patch.setattr(owner, place.partition(".")[2], fails)
        with pytest.raises(StateError, match="the disk is gone") as found:
            live.query.rescale(8)
    assert "was not rescaled: " in found.value.message
    assert found.value.hint == "the checkpoint is unchanged"
    assert st.inspect(live.checkpoint, spark=live.spark).max_parallelism == 4
    live.add(3)
    live.query.processAllAvailable()
    assert live.batches == expected
    assert live.query.rescale(8).rescale.new == 8, "nothing is left in the way"


@pytest.mark.thorough
def test_a_query_that_is_stopped_meanwhile_stays_stopped(live: Live) -> None:
    live.query.processAllAvailable()
    stops = threading.Thread(target=live.query.stop)

    def stop(done: int, total: int, step: str) -> None:
        if step == "putting it in place":
            stops.start()
            assert live.query.stop_wanted.wait(5)

    live.query.rescale(8, on_progress=stop)
    stops.join(10)
    assert not live.query.isActive
    assert live.query.awaitTermination(5)


@pytest.mark.thorough
def test_who_rescales_may_stop_the_query(live: Live) -> None:
    """It does not wait for itself."""
    live.query.processAllAvailable()
    report = live.query.rescale(8, on_progress=lambda *told: live.query.stop() if "place" in told[2] else None)
    assert report.rescale.new == 8
    assert not live.query.isActive
    assert live.query.awaitTermination(5)


@pytest.mark.thorough
def test_a_start_that_is_refused_leaves_the_run_before_marked(live: Live) -> None:
    """Or another process could run the query, too, and nobody could ask this one for a rescale."""
    live.query.processAllAvailable()
    marker = Path(live.checkpoint, MARKER)
    before = marker.read_bytes()
    with pytest.raises(StateError, match="max parallelism 4"):
        live.start(**{"pipeline.max-parallelism": 8})
    assert live.query.isActive
    assert marker.read_bytes() == before
    assert st.rescale_running(live.checkpoint, 8, spark=live.spark)["rescale"]["new"] == 8


@pytest.mark.thorough
def test_a_query_that_others_stop_in_a_batch_stays_stopped(live: Live) -> None:
    """A rescale interrupts no batch. One that is interrupted may be finished all the same: Python's code is not."""
    live.query.processAllAvailable()
    in_batch, may_end = threading.Event(), threading.Event()
    live.in_batch = lambda: (in_batch.set(), may_end.wait(60))
    live.add(1)
    assert in_batch.wait(20)
    (running,) = live.spark.streams.active
    refused: list[str] = []
    waits = threading.Event()

    def rescale() -> None:
        with pytest.raises(StateError) as found:
            live.query.rescale(8, on_progress=lambda done, *_: waits.set() if done == 0 else None)
        refused.append(str(found.value))

    asks = threading.Thread(target=rescale)
    asks.start()
    assert waits.wait(30), "the rescale waits for the end of its batch"
    time.sleep(0.5)
    threading.Timer(1, may_end.set).start()
    running.stop()
    asks.join(30)
    is_finished = Path(live.checkpoint, "commits/2").exists()
    assert ("by others" if is_finished else "in the middle of batch 2") in refused[0]
    assert not live.query.isActive
    assert live.query.awaitTermination(5)


@pytest.mark.thorough
def test_a_batch_that_was_not_finished_is_finished_before_a_rescale_at_its_start(live: Live, expected: Any) -> None:
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
def test_settings_are_those_of_the_first_start(live: Live) -> None:
    live.query.processAllAvailable()
    zone = "spark.sql.session.timeZone"
    first = live.spark.conf.get(zone)
    with with_settings(live.spark, {zone: "Asia/Tokyo"}):
        live.query.rescale(8)
        assert live.spark.conf.get(zone) == "Asia/Tokyo"
    assert executing(live.query).sparkSessionForStream().conf().get(zone) == first


@pytest.mark.thorough
def test_one_request_at_a_time(live: Live, expected: Any) -> None:
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
    while not (requests := Requests(Folder(Bridge(live.spark), live.checkpoint))).current():
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


@pytest.mark.parametrize("who", ["nobody", "a process that is gone", "a process without the query"])
def test_a_checkpoint_that_nobody_serves(
    spark: SparkSession, stopped: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(asking, "_TAKEN", 1.0)
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(stopped("counts updated").checkpoint, checkpoint)
    if who != "nobody":
        with named_in(checkpoint / MARKER):
            if who == "a process without the query":
                said = refused(spark, checkpoint)
    if who != "a process without the query":
        said = refused(spark, checkpoint)
    assert {"nobody": "there is no", "a process that is gone": "is gone"}.get(who, "takes no requests on") in said


def refused(spark: SparkSession, checkpoint: Path) -> str:
    """Ask where nobody serves; return what is said. Nothing is left of the request."""
    before = digest(checkpoint)
    with pytest.raises(StateError, match="no process serves a rescale of the query") as found:
        st.rescale_running(str(checkpoint), 8, spark=spark)
    assert digest(checkpoint) == before
    return str(found.value)


def test_the_marker_goes_with_the_query(live: Live, tmp_path: Path) -> None:
    assert (tmp_path / "checkpoint" / MARKER).exists()
    live.query.stop()
    deadline = time.monotonic() + 10
    while (tmp_path / "checkpoint" / MARKER).exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
