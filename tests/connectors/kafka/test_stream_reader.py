"""The stream reader's batches, over a real broker and with a simulated clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from tests.support.services import KafkaBroker, require_module

require_module("confluent_kafka", "kafka")

from penstock.connectors import KafkaSource
from penstock.connectors.kafka.streaming import KafkaStreamReader
from penstock.connectors.kafka.streams.batch_duration_file import BatchDurationWriter
from penstock.connectors.kafka.streams.micro_batches import BatchBounds
from penstock.connectors.kafka.streams.offsets import PlannedBatch, planned_batch_of, to_offset
from penstock.connectors.kafka.streams.pace import FIRST_RECORDS, GROWTH, MeasuredBatch
from penstock.errors import SourceError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

PACED = BatchBounds(interval=10, cores=2)


def fill(broker: KafkaBroker, topic: str, counts: dict[int, int], first: int = 0) -> None:
    """Write records whose ends the broker reports correctly: it counts the last batch of a partition as one record."""
    broker.fill(topic, {partition: count - 1 for partition, count in counts.items()}, first=first)
    broker.fill(topic, dict.fromkeys(counts, 1), first=first + 50_000)


class Spark:
    """A driver of micro-batches that calls a reader as Spark does."""

    def __init__(self, broker: KafkaBroker, topic: str, bounds: BatchBounds = PACED) -> None:
        self._source = KafkaSource(broker.servers, topic)
        self._bounds = bounds
        self.now = 1003.0
        self.end: dict[str, Any] = {}
        self.read: list[tuple[int, int]] = []
        self.restart()
        self.end = self.reader.initialOffset()

    def restart(self) -> None:
        """Continue in a new process from the checkpoint."""
        self.end = json.loads(json.dumps(self.end))
        self.reader = KafkaStreamReader(self._source, self._bounds, lambda: self.now)

    def batch(self, seconds: float = 1.0) -> tuple[PlannedBatch, list[int]] | None:
        """Run a batch; return its plan and the number of records of each task, or None without new records."""
        start = self.end
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        if end == start:
            return None
        sizes = []
        for task in self.reader.partitions(start, end):
            rows = [
                (partition, offset)
                for batch in self.reader.read(task)
                for partition, offset in zip(
                    *(batch[name].to_pylist() for name in ("partition", "offset")), strict=True
                )
            ]
            for partition in {partition for partition, _ in rows}:
                offsets = [offset for row_partition, offset in rows if row_partition == partition]
                assert offsets == sorted(offsets)
            sizes.append(len(rows))
            self.read += rows
        self.end = end
        self.now += seconds
        planned = planned_batch_of(end)
        assert planned is not None
        return planned, sizes

    def has_read(self, counts: Mapping[int, int]) -> bool:
        """Return whether each record was read once."""
        return sorted(self.read) == [(partition, offset) for partition in counts for offset in range(counts[partition])]


def run_batch(spark: Spark, seconds: float = 1.0) -> tuple[PlannedBatch, list[int]]:
    batch = spark.batch(seconds)
    assert batch is not None
    return batch


def test_batches_follow_lag_and_pace(broker: KafkaBroker) -> None:
    topic = broker.topic("paced", 3)
    counts = {0: 36_000, 1: 200, 2: 300}
    fill(broker, topic, counts)
    spark = Spark(broker, topic)
    first, sizes = run_batch(spark, 20.5)
    assert (first.decision.records, first.decision.tasks, first.previous_batch) == (FIRST_RECORDS, 4, None)
    assert sum(sizes) == FIRST_RECORDS
    assert max(sizes) <= 1.1 * min(sizes), "the hot partition is split"
    second, _ = run_batch(spark, 8.0)
    assert second.previous_batch == MeasuredBatch(FIRST_RECORDS, 20.5)
    assert second.measured_batches == (), "the first batch of a process also compiles, so its pace is not used"
    assert second.decision.records == FIRST_RECORDS
    third, _ = run_batch(spark, 4.0)
    assert third.decision.records == 11_250, "nine seconds of 1,250 records each"
    fourth, _ = run_batch(spark)
    assert fourth.previous_batch == MeasuredBatch(11_250, 4.0)
    assert fourth.decision.records == 36_500 - 2 * FIRST_RECORDS - 11_250, "all remaining records; 25,312 would fit"
    assert spark.batch() is None
    assert spark.has_read(counts)


@pytest.mark.thorough
def test_durations_of_batches_exclude_idle_calls_and_mark_waits(broker: KafkaBroker) -> None:
    topic = broker.topic("idle", 1)
    fill(broker, topic, {0: 50})
    spark = Spark(broker, topic)
    run_batch(spark, 2.5)
    assert spark.batch() is None
    spark.now = 5000.02
    fill(broker, topic, {0: 30}, first=50)
    second, _ = run_batch(spark, 9.99)
    assert second.previous_batch == MeasuredBatch(50, 2.5), "the time of idle calls is excluded"
    fill(broker, topic, {0: 20}, first=80)
    third, _ = run_batch(spark)
    assert third.previous_batch == MeasuredBatch(30, 9.99, waited=True), "triggers fire at multiples of the interval"
    assert spark.has_read({0: 100})


@pytest.mark.thorough
def test_reported_durations_replace_those_with_waits(broker: KafkaBroker) -> None:
    """The first batch of a process is excluded, because Spark still compiles."""
    topic = broker.topic("durations", 1)
    spark, writer = Spark(broker, topic), BatchDurationWriter()
    spark.now = 1000.0
    measured = []
    for number, seconds in enumerate([3.0, 0.5, 0.25]):
        fill(broker, topic, {0: 4_000}, first=4_000 * number)
        planned, _ = run_batch(spark, 10.0)
        measured.append(planned.previous_batch)
        durations = {"triggerExecution": 1000 * seconds, "addBatch": 100}
        source = {"startOffset": None, "endOffset": spark.end}
        writer.write({"id": "query", "durationMs": durations, "sources": [source]})
    fill(broker, topic, {0: 90_000}, first=12_000)
    jump, _ = run_batch(spark)
    assert [*measured, jump.previous_batch] == [
        None,
        MeasuredBatch(4_000, 10.0, waited=True),
        MeasuredBatch(4_000, 0.5),
        MeasuredBatch(4_000, 0.25),
    ]
    assert jump.decision.records == GROWTH * 4_000
    writer.remove("query")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seconds", "waited"), [(10.05, True), (9.95, True), (20.0, True), (9.8, False), (10.2, False)]
)
def test_waits_are_detected_for_a_reader_that_is_called_after_another(
    broker: KafkaBroker, seconds: float, waited: bool
) -> None:
    """Triggers fire at multiples of the interval, whatever time another reader takes before this reader."""
    topic = broker.topic(f"later{seconds}", 1)
    fill(broker, topic, {0: 50})
    spark = Spark(broker, topic)
    spark.now = 1000.7
    run_batch(spark, seconds)
    fill(broker, topic, {0: 50}, first=50)
    second, _ = run_batch(spark)
    assert second.previous_batch == MeasuredBatch(50, seconds, waited)


def test_the_initial_offset_is_the_same_in_each_call(broker: KafkaBroker) -> None:
    topic = broker.topic("latest", 1)
    fill(broker, topic, {0: 20})
    reader = KafkaStreamReader(KafkaSource(broker.servers, topic, start="latest"), PACED)
    start = reader.initialOffset()
    fill(broker, topic, {0: 30}, first=20)
    assert reader.initialOffset() == start == {"latest-0": 20}


class Ends(KafkaSource):
    """A source with simulated ends of partitions."""

    reported: ClassVar[dict[tuple[str, int], int]] = {}

    @contextmanager
    def _connect(self) -> Iterator[tuple[Consumer, dict[tuple[str, int], tuple[int, int]]]]:
        with super()._connect() as (consumer, _):
            yield consumer, {partition: (0, end) for partition, end in self.reported.items()}


@pytest.mark.thorough
def test_ends_never_decrease(broker: KafkaBroker) -> None:
    """Before Spark 4.2 a batch begins at the reported end of the last batch, so a lower end would repeat rows."""
    topic = broker.topic("less", 2)
    fill(broker, topic, {0: 41, 1: 30})
    source = Ends(broker.servers, topic)
    reader = KafkaStreamReader(source, BatchBounds())
    ends = []
    for reported in ({0: 41, 1: 30}, {0: 10, 1: 20}, {0: 42, 1: 20}):
        if reported[0] == 42:
            broker.fill(topic, {0: 1}, first=41)
        source.reported.update({(topic, partition): end for partition, end in reported.items()})
        ends.append(reader.latestOffset())
    assert ends == [{"less-0": 41, "less-1": 30}, {"less-0": 41, "less-1": 30}, {"less-0": 42, "less-1": 30}]


def test_a_lower_end_in_a_new_process_is_an_error(broker: KafkaBroker) -> None:
    """Before Spark 4.2 the reader does not know the last offsets; it must neither skip nor repeat records."""
    topic = broker.topic("remade", 1)
    fill(broker, topic, {0: 10})
    reader = KafkaStreamReader(KafkaSource(broker.servers, topic), BatchBounds())
    end = reader.latestOffset()
    assert end == {"remade-0": 10}
    with pytest.raises(SourceError, match="records of remade-0 from offset 1000 on no longer exist"):
        reader.partitions({"remade-0": 1000}, end)


@pytest.mark.thorough
def test_a_new_process_has_the_same_splits_and_pace(broker: KafkaBroker) -> None:
    topic = broker.topic("again", 2)
    fill(broker, topic, {0: 33_000, 1: 10})
    spark = Spark(broker, topic)
    start = spark.end
    first, _ = run_batch(spark)
    run_batch(spark, 8.0)
    run_batch(spark)
    spark.restart()
    other = KafkaStreamReader(KafkaSource(broker.servers, topic), BatchBounds(cores=64))
    assert len(other.partitions(start, to_offset({(topic, 0): 10_000}, first))) == 2, "as decided before the restart"
    planned, _ = run_batch(spark)
    assert planned.previous_batch is None, "the end of the last batch was before the restart"
    assert planned.measured_batches == (MeasuredBatch(FIRST_RECORDS, 8.0),)
    assert spark.has_read({0: 33_000, 1: 10})


def test_user_options_limit_records_and_tasks(broker: KafkaBroker) -> None:
    topic = broker.topic("bounded", 2)
    fill(broker, topic, {0: 5_000, 1: 100})
    spark = Spark(broker, topic, BatchBounds(interval=10, max_records=3_000, parallelism=3, cores=2))
    first, sizes = run_batch(spark)
    assert (sum(sizes), len(sizes)) == (3_000, 3)
    assert first.decision.reason.endswith("maxOffsetsPerTrigger is 3,000; 3 tasks: scan.parallelism is set")
    run_batch(spark)
    assert spark.batch() is None
    assert spark.has_read({0: 5_000, 1: 100})


@pytest.mark.thorough
def test_available_now_ignores_later_records(broker: KafkaBroker) -> None:
    topic = broker.topic("until", 1)
    fill(broker, topic, {0: 12_000})
    spark = Spark(broker, topic)
    spark.reader.prepareForTriggerAvailableNow()
    fill(broker, topic, {0: 100}, first=12_000)
    assert [run_batch(spark)[0].decision.records for _ in range(2)] == [FIRST_RECORDS, 2_000]
    assert spark.batch() is None


def test_without_limits_a_batch_has_all_records(broker: KafkaBroker) -> None:
    topic = broker.topic("all", 1)
    fill(broker, topic, {0: 12_000})
    spark = Spark(broker, topic, BatchBounds(cores=2))
    assert run_batch(spark)[0].decision.records == 12_000
    assert spark.reader.reportLatestOffset() == {"all-0": 12_000}


def test_a_checkpoint_of_an_earlier_release_is_continued(broker: KafkaBroker) -> None:
    topic = broker.topic("earlier", 2)
    fill(broker, topic, {0: 3_000, 1: 10})
    spark = Spark(broker, topic)
    assert len(spark.reader.partitions({"earlier-0": 0}, {"earlier-0": 3_000, "earlier-1": 10})) == 2
    spark.end = {"earlier-0": 2_990, "earlier-1": 10}
    planned, sizes = run_batch(spark)
    assert (planned.decision.records, planned.measured_batches, sizes) == (10, (), [10])


@pytest.mark.thorough
def test_records_beyond_the_reported_ends_are_read(broker: KafkaBroker) -> None:
    """The reader probes for these records when there is nothing else to read."""
    topic = broker.topic("behind", 1)
    broker.fill(topic, {0: 500})
    spark = Spark(broker, topic)
    assert [run_batch(spark)[0].decision.records for _ in range(2)] == [1, 499]
    assert spark.batch() is None
    assert spark.has_read({0: 500})


@pytest.mark.parametrize("start", [None, {}])
def test_a_call_without_a_start_reads_all_records(broker: KafkaBroker, start: Any) -> None:
    """Before Spark 4.2, a batch has all available records."""
    topic = broker.topic(f"no-start-{start is None}", 1)
    fill(broker, topic, {0: 20})
    reader = KafkaStreamReader(KafkaSource(broker.servers, topic), BatchBounds())
    end = reader.latestOffset() if start is None else reader.latestOffset(start)
    assert end[f"{topic}-0"] == 20
    assert len(reader.partitions({}, end)) == 1
