"""Batches of a stream over a real broker: as large as the pace allows, as wide as was decided, each record once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import DataSourceStreamReader

from tests.services import KafkaBroker, needed_module

needed_module("confluent_kafka", "kafka")

from penstock.connectors.kafka.stream_offsets import planned_of
from penstock.connectors.kafka.streaming import KafkaFormat
from penstock.connectors.pace import FIRST_RECORDS
from penstock.errors import ConfigError
from penstock.state import start_query
from penstock.streams.reading import LocalPlace, read_batches
from tests.connectors.kafka.test_stream_reader import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JOB = Path(__file__).parents[2] / "jobs" / "kafka_stream.py"
INTERVAL = {"scan.batch-interval": "10 s"}

pytestmark = pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "getDefaultReadLimit"), reason="before Spark 4.2 nothing bounds a batch"
)


def loaded(spark: SparkSession, broker: KafkaBroker, topic: str, **options: str) -> DataFrame:
    spark.dataSource.register(KafkaFormat)
    stream = spark.readStream.format("penstock_kafka").option("kafka.bootstrap.servers", broker.servers)
    return stream.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()


def started(spark: SparkSession, broker: KafkaBroker, topic: str, folder: Path, **options: str) -> StreamingQuery:
    stream = loaded(spark, broker, topic, **options)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start(str(folder / "out"))


def tasks_that_ran(spark: SparkSession, query: StreamingQuery) -> list[int]:
    """Return the tasks of each batch that a query has run, as Spark's status tells."""
    tracker = spark.sparkContext.statusTracker()
    found = []
    for job in sorted(tracker.getJobIdsForGroup(str(query.runId))):
        info = tracker.getJobInfo(job)
        assert info is not None
        for stage in info.stageIds:
            ran = tracker.getStageInfo(stage)
            assert ran is not None
            found.append(ran.numTasks)
    return found


def assert_each_once(spark: SparkSession, folder: Path, topic: str, counts: dict[int, int]) -> None:
    """Check that each offset was written once, and in order within each file, which a task wrote."""
    seen: dict[int, list[int]] = {partition: [] for partition in counts}
    for file in spark.read.parquet(str(folder / "out")).inputFiles():  # a killed task leaves files that do not count
        table = pq.read_table(urlsplit(file).path, columns=["topic", "partition", "offset"])
        if not table.num_rows:
            continue
        assert set(table["topic"].to_pylist()) == {topic}
        of_file: dict[int, list[int]] = {}
        for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
            of_file.setdefault(partition, []).append(offset)
        for partition, offsets in of_file.items():
            assert offsets == sorted(offsets)
            seen[partition] += offsets
    assert {partition: sorted(offsets) for partition, offsets in seen.items()} == {
        partition: list(range(count)) for partition, count in counts.items()
    }


@pytest.mark.thorough
def test_a_jump_and_a_restart(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    topic = broker.topic("jumps", 3)
    fill(broker, topic, {0: 21_000, 1: 300, 2: 300})
    ran: list[tuple[int, int]] = []
    for more in ({}, {0: 30_000, 2: 10}):
        fill(broker, topic, more)
        query = started(spark, broker, topic, tmp_path, **INTERVAL)
        query.processAllAvailable()
        query.stop()
        ran += zip(
            tasks_that_ran(spark, query),
            [one.numInputRows for one in query.recentProgress if one.numInputRows],
            strict=True,
        )
    assert_each_once(spark, tmp_path, topic, {0: 51_000, 1: 300, 2: 310})
    batches = read_batches(LocalPlace(tmp_path / "checkpoint"))
    assert [(one.decision.tasks, one.decision.records) for one in batches] == ran
    first, _, third, jump, *_ = (one.decision for one in batches)
    assert (first.lag, first.records) == (21_600, FIRST_RECORDS)
    assert third.lag == third.records, "what is left"
    assert jump.lag == 30_010
    assert "no batch so far tells the pace" not in jump.reason, "the pace is known after the restart"
    assert jump.tasks > 1, "though nearly all of it is in one partition"
    assert [one.ran is None for one in batches[:3]] == [False, False, True], (
        "nobody saw the end of the last before the restart"
    )
    assert all(0 < one.ran.seconds < 60 and one.ran.records == one.decision.records for one in batches if one.ran)


@pytest.mark.thorough
def test_what_a_batch_took_that_waited_for_its_trigger(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, seconds = broker.topic("waits", 1), 3
    fill(broker, topic, {0: 500})
    stream = loaded(spark, broker, topic, **{"scan.batch-interval": f"{seconds} s"})
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writer = writer.trigger(processingTime=f"{seconds} seconds")
    query = start_query(writer, str(tmp_path / "checkpoint"), spark=spark)
    place, counts = LocalPlace(tmp_path / "checkpoint"), 500
    try:
        for batches in (1, 2, 3):
            until = time.monotonic() + 60
            while len(query.recentProgress) < batches or query.status["isTriggerActive"]:
                assert time.monotonic() < until, query.status
                time.sleep(0.1)
            fill(broker, topic, {0: 500}, first=counts)
            counts += 500
        query.processAllAvailable()
    finally:
        query.stop()
    took = {
        one.batchId: (one.durationMs["triggerExecution"] - one.durationMs["latestOffset"]) / 1000
        for one in query.recentProgress
        if one.numInputRows
    }
    _, *measured = [one for one in read_batches(place) if one.ran]
    exact = [one for one in measured if one.ran and not one.ran.waited and one.ran.seconds == took[one.batch]]
    assert exact, (measured, took)
    assert all(one.ran and one.ran.seconds < seconds for one in exact)
    assert_each_once(spark, tmp_path, topic, {0: counts})
    planned = planned_of(json.loads(query.recentProgress[0].sources[0].endOffset))
    assert planned is not None
    file, until = Path(tempfile.gettempdir(), f"penstock-stream-{planned.reader}"), time.monotonic() + 20
    while file.exists():  # until Spark has told that the query ended
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.slow
def test_the_user_bounds_batches_and_tasks(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    topic = broker.topic("bounded", 2)
    fill(broker, topic, {0: 5_000, 1: 100})
    options = INTERVAL | {"maxOffsetsPerTrigger": "3000", "scan.parallelism": "3"}
    query = started(spark, broker, topic, tmp_path, **options)
    query.processAllAvailable()
    query.stop()
    assert tasks_that_ran(spark, query) == [3, 3]
    assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [3000, 2100]
    assert_each_once(spark, tmp_path, topic, {0: 5_000, 1: 100})


@pytest.mark.slow
def test_available_now_reads_what_was_there_in_batches(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = broker.topic("available", 1)
    fill(broker, topic, {0: 12_000})
    spark.dataSource.register(KafkaFormat)
    stream = spark.readStream.format("penstock_kafka").option("kafka.bootstrap.servers", broker.servers)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").options(**INTERVAL)
    late: list[None] = []

    def more(_df: Any, _batch: int) -> None:
        if not late:
            late.append(None)
            fill(broker, topic, {0: 50}, first=100_000)

    writer = stream.load().writeStream.foreachBatch(more).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [], "foreachBatch read nothing"
    assert [one.decision.records for one in read_batches(LocalPlace(tmp_path))] == [FIRST_RECORDS, 2_000]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scan.batch-interval": "soon"}, "scan.batch-interval"),
        ({"scan.parallelism": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
        ({"scan.infer-parallelism.max": "-1"}, "scan.infer-parallelism.max"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: str) -> None:
    given = {"kafka.bootstrap.servers": "x", "subscribe": "t", **options}
    with pytest.raises(ConfigError, match=words):
        KafkaFormat(given).streamReader(None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_killed_in_a_batch(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    topic = broker.topic("killed", 3)
    fill(broker, topic, {0: 11_000, 1: 300, 2: 300})
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    command = [sys.executable, str(JOB), broker.servers, topic, str(checkpoint), str(out)]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(checkpoint / "commits" / "1")
        fill(broker, topic, {0: 60_000, 2: 10}, first=100_000)
        wait_for(checkpoint / "offsets" / "2")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (checkpoint / "commits" / "2").exists(), "it was killed too late"
    planned = read_batches(LocalPlace(checkpoint))[2]
    query = started(spark, broker, topic, tmp_path, **INTERVAL)
    query.processAllAvailable()
    query.stop()
    assert tasks_that_ran(spark, query)[0] == planned.decision.tasks
    assert query.recentProgress[0].numInputRows == planned.decision.records
    again = read_batches(LocalPlace(checkpoint))
    assert again[2].decision == planned.decision
    assert again[2].ran is None, "nobody saw how it began"
    assert len(again) > 3
    assert_each_once(spark, tmp_path, topic, {0: 71_000, 1: 300, 2: 310})


def wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until, f"there is no {file.name}"
        time.sleep(0.02)
