"""Topics of a real broker: each record is read once, hot partitions are split, and ends are verified."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.services import KafkaBroker, require_module

require_module("confluent_kafka", "kafka")

from penstock.connectors import KafkaSink, KafkaSource, ScanContext
from penstock.connectors.core.splits import distribute_evenly
from penstock.connectors.kafka import client
from penstock.connectors.kafka.streaming import KafkaFormat
from penstock.errors import JobError, SinkError, SourceError
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


HOT = {0: 27_000, 1: 600, 2: 600, 3: 600, 4: 600, 5: 600}
TOTAL = sum(HOT.values())
VOLUME = {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "4 mb"}


@pytest.fixture(scope="module")
def hot(broker: KafkaBroker) -> Any:
    """A topic with nine of ten records in a single partition."""
    topic = broker.topic("hot", 6)
    broker.fill(topic, HOT)
    return topic


def numbers(df: DataFrame) -> Any:
    return df.select(F.col("value").cast("string").cast("int").alias("n"))


def test_each_record_is_read_once_and_a_hot_partition_is_split(
    make_env: Callable[..., Environment], spark: SparkSession, broker: KafkaBroker, hot: Any
) -> None:
    env = make_env(**VOLUME)
    df = numbers(env.read(KafkaSource(broker.servers, hot)))
    (row,) = env.collect(df.agg(F.count("*"), F.countDistinct("n"), F.sum("n"), F.min("n"), F.max("n")))
    assert tuple(row) == (TOTAL, TOTAL, TOTAL * (TOTAL - 1) // 2, 0, TOTAL - 1)
    source = env.last_job.vertices[0]
    assert source.parallelism >= 7, source.reason
    assert [stage.tasks for stage in stages(spark, env.last_job, hot)].count(source.parallelism) == 1


@pytest.mark.thorough
def test_splits_are_balanced(broker: KafkaBroker, hot: Any) -> None:
    source = KafkaSource(broker.servers, hot)
    for tasks in (4, 8, 16):
        splits = source.enumerate_splits(ScanContext(tasks, 1 << 20))
        groups = distribute_evenly(splits, [split.backlog for split in splits], tasks)
        records_per_task = [sum(split.backlog for split in group) for group in groups]
        assert sum(records_per_task) == TOTAL
        assert max(records_per_task) <= 1.5 * TOTAL / len(records_per_task)


def test_all_columns_of_records_are_read(env: Environment, broker: KafkaBroker, hot: Any) -> None:
    df = env.read(KafkaSource(broker.servers, hot)).where("partition = 3")
    rows = env.collect(df.select("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"))
    assert len(rows) == HOT[3]
    assert {row.topic for row in rows} == {hot}
    assert sorted(row.offset for row in rows) == list(range(HOT[3]))
    assert {bytes(row.key).decode() for row in rows} == {f"k{i}" for i in range(7)}
    assert {(row.headers[0].key, bytes(row.headers[0].value)) for row in rows} == {("h", b"x")}
    assert all(abs((dt.datetime.now() - row.timestamp).total_seconds()) < 3600 for row in rows)


@pytest.mark.thorough
def test_ranges_are_bounded_by_offsets_and_times(env: Environment, broker: KafkaBroker) -> None:
    topic = broker.topic("offsets", 2)
    broker.fill(topic, {0: 100, 1: 50})
    time.sleep(1.1)
    between = dt.datetime.now()
    time.sleep(1.1)
    broker.fill(topic, {0: 10, 1: 5}, first=1000)

    def count(**bounds: Any) -> Any:
        return env.count(env.read(KafkaSource(broker.servers, topic, **bounds)))

    assert count() == 165
    assert count(start={(topic, 0): 90, (topic, 1): 55}) == 20
    assert count(end={(topic, 0): 3, (topic, 1): 0}) == 3
    assert count(start="latest") == 0
    assert count(start=between) == 15
    assert count(end=between) == 150
    assert count(start=dt.datetime(2020, 1, 1), end=between) == 150
    with pytest.raises(SourceError, match="offset 500 of offsets-0 does not exist"):
        KafkaSource(broker.servers, topic, start={(topic, 0): 500}).ranges()


def test_an_end_that_the_broker_reports_too_low_is_corrected(broker: KafkaBroker) -> None:
    """This broker counts the last batch as a single record, so its reported end is too low."""
    topic = broker.topic("tail", 1)
    broker.fill(topic, {0: 500})
    (offset_range,) = KafkaSource(broker.servers, topic).ranges()
    assert offset_range.end == 500


@pytest.mark.thorough
def test_the_end_is_corrected_by_a_slow_broker(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is stopped for two seconds after it has reported ends, as under heavy load."""
    topic = broker.topic("confirmed-late", 2)
    broker.fill(topic, {0: 500, 1: 300})
    reported_ends = client.reported_ends

    def stop_afterwards(*arguments: Any) -> Any:
        reported = reported_ends(*arguments)
        broker.pause(2)
        return reported

    monkeypatch.setattr(client, "reported_ends", stop_afterwards)
    assert [offset_range.end for offset_range in KafkaSource(broker.servers, topic).ranges()] == [500, 300]


def test_an_empty_topic_has_no_rows(env: Environment, broker: KafkaBroker) -> None:
    topic = broker.topic("empty", 3)
    assert env.count(env.read(KafkaSource(broker.servers, topic))) == 0


@pytest.mark.thorough
def test_plain_spark_reads_with_the_data_source(spark: SparkSession, broker: KafkaBroker, hot: Any) -> None:
    spark.dataSource.register(KafkaFormat)
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": hot, "startingOffsets": "earliest"}
    df = spark.read.format("penstock_kafka").options(**options, **{"scan.parallelism": "4"}).load()
    assert numbers(df).distinct().count() == TOTAL
    assert KafkaSource(broker.servers, hot).read(spark).count() == TOTAL


@pytest.mark.thorough
def test_a_stream_reads_each_record_once(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    spark.dataSource.register(KafkaFormat)
    topic = broker.topic("flowing", 2)
    broker.fill(topic, {0: 3000, 1: 100})
    options = {
        "kafka.bootstrap.servers": broker.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
    }
    can_limit = tuple(map(int, spark.version.split(".")[:2])) >= (4, 2)
    if not can_limit:
        with pytest.raises(Exception, match="maxOffsetsPerTrigger would be ignored"):
            spark.readStream.format("penstock_kafka").options(**options).load().writeStream.format(
                "noop"
            ).start().processAllAvailable()
        del options["maxOffsetsPerTrigger"]
    stream = numbers(spark.readStream.format("penstock_kafka").options(**options).load())

    def run() -> Any:
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "c"))
            .start(str(tmp_path / "out"))
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return query.recentProgress

    progress = run()
    assert max(batch.numInputRows for batch in progress) <= (1100 if can_limit else 3100)
    broker.fill(topic, {0: 10, 1: 200}, first=10_000)
    run()
    out = spark.read.parquet(str(tmp_path / "out"))
    assert (out.count(), out.distinct().count()) == (3310, 3310)


def test_the_sink_writes_all_records(env: Environment, spark: SparkSession, broker: KafkaBroker) -> None:
    topic = broker.topic("written", 3)
    df = spark.range(0, 5000, 1, 4).selectExpr(
        "cast(id as string) as value",
        "concat('k', id % 3) as key",
        "array(struct('h' as key, cast('v' as binary) as value)) as headers",
    )
    env.write(df, KafkaSink(broker.servers, topic))
    env.execute()
    written = env.read(KafkaSource(broker.servers, topic))
    (row,) = env.collect(numbers(written).agg(F.count("*"), F.countDistinct("n")))
    assert tuple(row) == (5000, 5000)


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["id"], "columns id cannot be written"), (["cast(id as string) as value", "id"], "cannot be written")],
)
def test_rows_with_other_columns_or_types_are_errors(
    env: Environment, spark: SparkSession, broker: KafkaBroker, hot: Any, columns: list[str], message: str
) -> None:
    env.write(spark.range(3).selectExpr(*columns), KafkaSink(broker.servers, hot))
    with pytest.raises((JobError, SinkError), match=message):
        env.execute()


def test_bad_topics_positions_parallelism_and_options_are_errors(
    env: Environment, spark: SparkSession, broker: KafkaBroker
) -> None:
    with pytest.raises(SourceError, match="no topic 'none'"):
        KafkaSource(broker.servers, "none").ranges()
    with pytest.raises(SourceError, match="not a position in a topic"):
        KafkaSource(broker.servers, "t", start="yesterday")
    with pytest.raises(SourceError, match="invalid parallelism"):
        KafkaSource(broker.servers, "t", parallelism=0)
    with pytest.raises(SourceError, match="unknown option 'subscripe'"):
        KafkaFormat({"kafka.bootstrap.servers": "x", "subscripe": "t"}).reader(None)


class Interrupted(KafkaSource):
    """A source that waits after a batch until its broker is killed."""

    def read_split(self, split: Any, columns: Any) -> Iterator[Any]:
        reached = Path(self.properties["client.id"])
        for batch in super().read_split(split, columns):
            yield batch
            if not reached.exists():
                reached.touch()
                while (reached.with_suffix(".alive")).exists():
                    time.sleep(0.05)


@pytest.mark.thorough
def test_a_broker_that_is_killed_during_a_read_fails_the_job(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env = make_env(**{"sources.timeout": "3 s"})
    broker = KafkaBroker()
    reached, alive = tmp_path / "reached", tmp_path / "reached.alive"
    alive.touch()

    def kill() -> None:
        while not reached.exists():
            time.sleep(0.05)
        broker.kill()
        alive.unlink()

    try:
        topic = broker.topic("killed", 1)
        for first in range(0, 20_000, 1000):  # the broker returns whole batches
            broker.fill(topic, {0: 1000}, first=first, width=1000)
        small_fetches = {
            "queued.min.messages": "1000",
            "queued.max.messages.kbytes": "64",
            "fetch.message.max.bytes": "20000",
            "client.id": str(reached),
        }
        df = env.read(Interrupted(broker.servers, topic, properties=small_fetches, parallelism=1))
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with pytest.raises(JobError, match=r"sends no records from offset [1-9]\d* of 20000"):
            env.collect(df.groupBy("partition").count())
        killer.join(10)
        assert not alive.exists()
    finally:
        broker.close()
