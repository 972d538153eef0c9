"""Micro-batches over a real broker: their size follows the measured pace, and each record is read once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import DataSourceStreamReader

from tests.support.paths import TESTS
from tests.support.services import KafkaBroker, require_module

require_module("confluent_kafka", "kafka")

from penstock.connectors.kafka.streaming import KafkaFormat
from penstock.connectors.kafka.streams.offsets import planned_batch_of
from penstock.connectors.kafka.streams.pace import FIRST_RECORDS
from penstock.errors import ConfigError
from penstock.state import start_query
from penstock.streams.reading import LocalTextFiles, read_batches
from tests.connectors.kafka.test_stream_reader import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JOB = TESTS / "jobs" / "kafka_stream.py"
INTERVAL = {"scan.batch-interval": "10 s"}

pytestmark = pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "getDefaultReadLimit"), reason="Spark before 4.2 does not limit batches"
)


def load_stream(spark: SparkSession, broker: KafkaBroker, topic: str, **options: str) -> DataFrame:
    spark.dataSource.register(KafkaFormat)
    stream = spark.readStream.format("penstock_kafka").option("kafka.bootstrap.servers", broker.servers)
    return stream.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()


def start_stream(spark: SparkSession, broker: KafkaBroker, topic: str, folder: Path, **options: str) -> StreamingQuery:
    stream = load_stream(spark, broker, topic, **options)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start(str(folder / "out"))


def tasks_per_batch(spark: SparkSession, query: StreamingQuery) -> list[int]:
    """Return the numbers of tasks of a query's batches, from Spark's status tracker."""
    tracker = spark.sparkContext.statusTracker()
    task_counts = []
    for job in sorted(tracker.getJobIdsForGroup(str(query.runId))):
        info = tracker.getJobInfo(job)
        assert info is not None
        for stage in info.stageIds:
            stage_info = tracker.getStageInfo(stage)
            assert stage_info is not None
            task_counts.append(stage_info.numTasks)
    return task_counts


def read_counts(query: StreamingQuery) -> list[int]:
    """Return the numbers of records that a query's batches read, without empty batches."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def assert_each_read_once(spark: SparkSession, folder: Path, topic: str, counts: dict[int, int]) -> None:
    """Check that each offset was written once, and in order within each file (that is, each task)."""
    seen: dict[int, list[int]] = {partition: [] for partition in counts}
    for file in spark.read.parquet(str(folder / "out")).inputFiles():  # without uncommitted files of killed tasks
        table = pq.read_table(urlsplit(file).path, columns=["topic", "partition", "offset"])
        if not table.num_rows:
            continue
        assert set(table["topic"].to_pylist()) == {topic}
        offsets_in_file: dict[int, list[int]] = {}
        for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
            offsets_in_file.setdefault(partition, []).append(offset)
        for partition, offsets in offsets_in_file.items():
            assert offsets == sorted(offsets)
            seen[partition] += offsets
    assert {partition: sorted(offsets) for partition, offsets in seen.items()} == {
        partition: list(range(count)) for partition, count in counts.items()
    }


@pytest.mark.thorough
def test_batches_keep_their_pace_after_a_jump_of_the_lag_and_a_restart(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = broker.topic("jumps", 3)
    fill(broker, topic, {0: 21_000, 1: 300, 2: 300})
    actual: list[tuple[int, int]] = []
    for new_counts in ({}, {0: 30_000, 2: 10}):
        fill(broker, topic, new_counts)
        query = start_stream(spark, broker, topic, tmp_path, **INTERVAL)
        query.processAllAvailable()
        query.stop()
        actual += zip(tasks_per_batch(spark, query), read_counts(query), strict=True)
    assert_each_read_once(spark, tmp_path, topic, {0: 51_000, 1: 300, 2: 310})
    batches = read_batches(LocalTextFiles(tmp_path / "checkpoint"))
    assert [(batch.decision.tasks, batch.decision.records) for batch in batches] == actual
    first, _, third, jump, *_ = (batch.decision for batch in batches)
    assert (first.lag, first.records) == (21_600, FIRST_RECORDS)
    assert third.lag == third.records, "the remaining records"
    assert jump.lag == 30_010
    assert "the pace is still unknown" not in jump.reason, "the pace is restored after the restart"
    assert jump.tasks > 1, "nearly all records are in a single partition"
    last_unmeasured = [batch.ran is None for batch in batches[:3]]
    assert last_unmeasured == [False, False, True], "the restart hides the end of the last batch before it"
    measured = [batch for batch in batches if batch.ran]
    assert all(0 < batch.ran.seconds < 60 and batch.ran.records == batch.decision.records for batch in measured)


@pytest.mark.thorough
def test_the_duration_of_a_batch_excludes_the_wait_for_its_trigger(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, seconds = broker.topic("waits", 1), 3
    fill(broker, topic, {0: 500})
    stream = load_stream(spark, broker, topic, **{"scan.batch-interval": f"{seconds} s"})
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writer = writer.trigger(processingTime=f"{seconds} seconds")
    query = start_query(writer, str(tmp_path / "checkpoint"), spark=spark)
    checkpoint, count = LocalTextFiles(tmp_path / "checkpoint"), 500
    try:
        for batches in (1, 2, 3):
            deadline = time.monotonic() + 60
            while len(query.recentProgress) < batches or query.status["isTriggerActive"]:
                assert time.monotonic() < deadline, query.status
                time.sleep(0.1)
            fill(broker, topic, {0: 500}, first=count)
            count += 500
        query.processAllAvailable()
    finally:
        query.stop()
    durations = {
        progress.batchId: (progress.durationMs["triggerExecution"] - progress.durationMs["latestOffset"]) / 1000
        for progress in query.recentProgress
        if progress.numInputRows
    }
    _, *measured = [(batch.batch, batch.ran) for batch in read_batches(checkpoint) if batch.ran]
    exact = [ran for number, ran in measured if not ran.waited and ran.seconds == durations[number]]
    assert exact, (measured, durations)
    assert all(ran.seconds < seconds for ran in exact)
    assert_each_read_once(spark, tmp_path, topic, {0: count})
    planned = planned_batch_of(json.loads(query.recentProgress[0].sources[0].endOffset))
    assert planned is not None
    file, deadline = Path(tempfile.gettempdir(), f"penstock-stream-{planned.reader}"), time.monotonic() + 20
    while file.exists():  # until Spark has reported the end of the query
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_user_options_limit_records_and_tasks(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    topic = broker.topic("bounded", 2)
    fill(broker, topic, {0: 5_000, 1: 100})
    options = INTERVAL | {"maxOffsetsPerTrigger": "3000", "scan.parallelism": "3"}
    query = start_stream(spark, broker, topic, tmp_path, **options)
    query.processAllAvailable()
    query.stop()
    assert tasks_per_batch(spark, query) == [3, 3]
    assert read_counts(query) == [3000, 2100]
    assert_each_read_once(spark, tmp_path, topic, {0: 5_000, 1: 100})


@pytest.mark.slow
def test_available_now_reads_only_the_records_at_its_start(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = broker.topic("available", 1)
    fill(broker, topic, {0: 12_000})
    spark.dataSource.register(KafkaFormat)
    stream = spark.readStream.format("penstock_kafka").option("kafka.bootstrap.servers", broker.servers)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").options(**INTERVAL)
    has_added: list[bool] = []

    def add_records(_df: Any, _batch: int) -> None:
        if not has_added:
            has_added.append(True)
            fill(broker, topic, {0: 50}, first=100_000)

    writer = stream.load().writeStream.foreachBatch(add_records).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    assert read_counts(query) == [], "foreachBatch reads no rows here"
    assert [batch.decision.records for batch in read_batches(LocalTextFiles(tmp_path))] == [FIRST_RECORDS, 2_000]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan.batch-interval": "soon"}, "scan.batch-interval"),
        ({"scan.parallelism": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
        ({"scan.infer-parallelism.max": "-1"}, "scan.infer-parallelism.max"),
    ],
)
def test_bad_options_are_errors(options: dict[str, str], message: str) -> None:
    required = {"kafka.bootstrap.servers": "x", "subscribe": "t"}
    with pytest.raises(ConfigError, match=message):
        KafkaFormat(required | options).streamReader(None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_killed_batch_is_repeated_with_the_same_decision(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = broker.topic("killed", 3)
    offsets = {0: 11_000, 1: 300, 2: 300}
    fill(broker, topic, offsets)
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    command = [sys.executable, str(JOB), broker.servers, topic, str(checkpoint), str(out), *map(str, offsets.values())]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with ThreadPoolExecutor(1) as pool:
        try:
            wait_for(checkpoint / "commits" / "1")
            # Batch 2 may begin, and end, before all records are written.
            filled = pool.submit(fill, broker, topic, {0: 60_000, 2: 10}, first=100_000)
            wait_for(checkpoint / "offsets" / "2")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        filled.result()
    assert not (checkpoint / "commits" / "2").exists(), "it was killed too late"
    planned = read_batches(LocalTextFiles(checkpoint))[2]
    query = start_stream(spark, broker, topic, tmp_path, **INTERVAL)
    query.processAllAvailable()
    query.stop()
    assert tasks_per_batch(spark, query)[0] == planned.decision.tasks
    assert query.recentProgress[0].numInputRows == planned.decision.records
    batches = read_batches(LocalTextFiles(checkpoint))
    assert batches[2].decision == planned.decision
    assert batches[2].ran is None, "its start was before the restart"
    assert len(batches) > 3
    assert_each_read_once(spark, tmp_path, topic, {0: 71_000, 1: 300, 2: 310})


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"there is no {file.name}"
        time.sleep(0.005)
