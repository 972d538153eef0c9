"""What Spark is told of batches, over a real broker and with a clock that the test sets."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from tests.services import KafkaBroker, needed_module

needed_module("confluent_kafka", "kafka")

from penstock.connectors import KafkaSource
from penstock.connectors.kafka.stream_offsets import PlannedBatch, offset_of, planned_of
from penstock.connectors.kafka.stream_reader import KafkaStreamReader
from penstock.connectors.kafka.told_times import Teller
from penstock.connectors.micro_batches import BatchBounds
from penstock.connectors.pace import FIRST_RECORDS, GROWTH, RanBatch
from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Consumer

PACED = BatchBounds(interval=10, cores=2)


def fill(broker: KafkaBroker, topic: str, counts: dict[int, int], first: int = 0) -> None:
    """Write records so that the broker tells their ends: it tells the last batch of each partition as one record."""
    broker.fill(topic, {partition: count - 1 for partition, count in counts.items()}, first=first)
    broker.fill(topic, dict.fromkeys(counts, 1), first=first + 50_000)


class Spark:
    """Asks a reader as Spark does, and reads what it says."""

    def __init__(self, broker: KafkaBroker, topic: str, bounds: BatchBounds = PACED) -> None:
        self._source = KafkaSource(broker.servers, topic)
        self._bounds = bounds
        self.now = 1003.0
        self.end: dict[str, Any] = {}
        self.read: list[tuple[int, int]] = []
        self.restart()
        self.end = self.reader.initialOffset()

    def restart(self) -> None:
        """Go on in a new process, with what the checkpoint has."""
        self.end = json.loads(json.dumps(self.end))
        self.reader = KafkaStreamReader(self._source, self._bounds, lambda: self.now)

    def batch(self, seconds: float = 1.0) -> tuple[PlannedBatch, list[int]] | None:
        """Run a batch; return what was decided, and the records of each task; None if there is nothing to read."""
        start = self.end
        told = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        if told == start:
            return None
        sizes = []
        for task in self.reader.partitions(start, told):
            rows = [
                (partition, offset)
                for batch in self.reader.read(task)
                for partition, offset in zip(
                    *(batch[name].to_pylist() for name in ("partition", "offset")), strict=True
                )
            ]
            for partition in {partition for partition, _ in rows}:
                offsets = [offset for one, offset in rows if one == partition]
                assert offsets == sorted(offsets)
            sizes.append(len(rows))
            self.read += rows
        self.end = told
        self.now += seconds
        planned = planned_of(told)
        assert planned is not None
        return planned, sizes

    def has_read(self, counts: Mapping[int, int]) -> bool:
        """Whether each record was read once."""
        return sorted(self.read) == [(partition, offset) for partition in counts for offset in range(counts[partition])]


def ran(spark: Spark, seconds: float = 1.0) -> tuple[PlannedBatch, list[int]]:
    found = spark.batch(seconds)
    assert found is not None
    return found


def test_batches_follow_lag_and_pace(broker: KafkaBroker) -> None:
    topic = broker.topic("paced", 3)
    counts = {0: 36_000, 1: 200, 2: 300}
    fill(broker, topic, counts)
    spark = Spark(broker, topic)
    first, sizes = ran(spark, 20.5)
    assert (first.decision.records, first.decision.tasks, first.before) == (FIRST_RECORDS, 4, None)
    assert sum(sizes) == FIRST_RECORDS
    assert max(sizes) <= 1.1 * min(sizes), "the hot partition is cut"
    second, _ = ran(spark, 8.0)
    assert second.before == RanBatch(FIRST_RECORDS, 20.5)
    assert second.ran == (), "the first one of a process also compiles, and tells no pace"
    assert second.decision.records == FIRST_RECORDS
    third, _ = ran(spark, 4.0)
    assert third.decision.records == 11_250, "nine seconds of 1,250 records each"
    fourth, _ = ran(spark)
    assert fourth.before == RanBatch(11_250, 4.0)
    assert fourth.decision.records == 36_500 - 2 * FIRST_RECORDS - 11_250, "all that is left: 25,312 would fit"
    assert spark.batch() is None
    assert spark.has_read(counts)


@pytest.mark.thorough
def test_idle_calls_and_waits_are_no_time_of_a_batch(broker: KafkaBroker) -> None:
    topic = broker.topic("idle", 1)
    fill(broker, topic, {0: 50})
    spark = Spark(broker, topic)
    ran(spark, 2.5)
    assert spark.batch() is None
    spark.now = 5000.02
    fill(broker, topic, {0: 30}, first=50)
    second, _ = ran(spark, 9.99)
    assert second.before == RanBatch(50, 2.5), "the time of the idle calls is none of its own"
    fill(broker, topic, {0: 20}, first=80)
    third, _ = ran(spark)
    assert third.before == RanBatch(30, 9.99, waited=True), "a multiple of the interval is when triggers fire"
    assert spark.has_read({0: 100})


@pytest.mark.thorough
def test_the_time_of_a_batch_that_waited_is_told(broker: KafkaBroker) -> None:
    """A steady trickle then tells the pace. That of a process's first batch does not: Spark still compiles."""
    topic = broker.topic("told-times", 1)
    spark, teller = Spark(broker, topic), Teller()
    spark.now = 1000.0
    found = []
    for number, seconds in enumerate([3.0, 0.5, 0.25]):
        fill(broker, topic, {0: 4_000}, first=4_000 * number)
        planned, _ = ran(spark, 10.0)
        found.append(planned.before)
        durations = {"triggerExecution": 1000 * seconds, "addBatch": 100}
        source = {"startOffset": None, "endOffset": spark.end}
        teller.tell({"id": "query", "durationMs": durations, "sources": [source]})
    fill(broker, topic, {0: 90_000}, first=12_000)
    jump, _ = ran(spark)
    assert [*found, jump.before] == [
        None,
        RanBatch(4_000, 10.0, waited=True),
        RanBatch(4_000, 0.5),
        RanBatch(4_000, 0.25),
    ]
    assert jump.decision.records == GROWTH * 4_000
    teller.forget("query")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seconds", "waited"), [(10.05, True), (9.95, True), (20.0, True), (9.8, False), (10.2, False)]
)
def test_a_reader_that_is_asked_after_another(broker: KafkaBroker, seconds: float, waited: bool) -> None:
    """Triggers fire a whole multiple of the interval after each other, whatever the other reader takes before."""
    topic = broker.topic(f"later{seconds}", 1)
    fill(broker, topic, {0: 50})
    spark = Spark(broker, topic)
    spark.now = 1000.7
    ran(spark, seconds)
    fill(broker, topic, {0: 50}, first=50)
    second, _ = ran(spark)
    assert second.before == RanBatch(50, seconds, waited)


def test_nothing_is_lost_between_two_questions_for_the_start(broker: KafkaBroker) -> None:
    topic = broker.topic("latest", 1)
    fill(broker, topic, {0: 20})
    reader = KafkaStreamReader(KafkaSource(broker.servers, topic, start="latest"), PACED)
    start = reader.initialOffset()
    fill(broker, topic, {0: 30}, first=20)
    assert reader.initialOffset() == start == {"latest-0": 20}


class Ends(KafkaSource):
    """A topic whose ends are what the test says."""

    told: ClassVar[dict[tuple[str, int], int]] = {}

    @contextmanager
    def _asked_for(self) -> Iterator[tuple[Consumer, dict[tuple[str, int], tuple[int, int]]]]:
        with super()._asked_for() as (asked, _):
            yield asked, {place: (0, end) for place, end in self.told.items()}


@pytest.mark.thorough
def test_a_broker_that_tells_less_for_a_moment(broker: KafkaBroker) -> None:
    """Before Spark 4.2 a batch would begin where the last one ended, as the reader said: rows would come twice."""
    topic = broker.topic("less", 2)
    fill(broker, topic, {0: 41, 1: 30})
    source = Ends(broker.servers, topic)
    reader = KafkaStreamReader(source, BatchBounds())
    ends = []
    for told in ({0: 41, 1: 30}, {0: 10, 1: 20}, {0: 42, 1: 20}):
        if told[0] == 42:
            broker.fill(topic, {0: 1}, first=41)
        source.told.update({(topic, partition): end for partition, end in told.items()})
        ends.append(reader.latestOffset())
    assert ends == [{"less-0": 41, "less-1": 30}, {"less-0": 41, "less-1": 30}, {"less-0": 42, "less-1": 30}]


def test_a_new_process_to_which_less_is_told(broker: KafkaBroker) -> None:
    """Before Spark 4.2 it does not know what was read: nothing may be passed over, or read twice."""
    topic = broker.topic("remade", 1)
    fill(broker, topic, {0: 10})
    reader = KafkaStreamReader(KafkaSource(broker.servers, topic), BatchBounds())
    end = reader.latestOffset()
    assert end == {"remade-0": 10}
    with pytest.raises(SourceError, match="records of remade-0 from offset 1000 on are gone"):
        reader.partitions({"remade-0": 1000}, end)


@pytest.mark.thorough
def test_a_new_process_makes_the_same_splits_and_knows_the_pace(broker: KafkaBroker) -> None:
    topic = broker.topic("again", 2)
    fill(broker, topic, {0: 33_000, 1: 10})
    spark = Spark(broker, topic)
    start = spark.end
    first, _ = ran(spark)
    ran(spark, 8.0)
    ran(spark)
    spark.restart()
    other = KafkaStreamReader(KafkaSource(broker.servers, topic), BatchBounds(cores=64))
    assert len(other.partitions(start, offset_of({(topic, 0): 10_000}, first))) == 2, "as was decided, whatever is now"
    planned, _ = ran(spark)
    assert planned.before is None, "nobody saw the last one end"
    assert planned.ran == (RanBatch(FIRST_RECORDS, 8.0),)
    assert spark.has_read({0: 33_000, 1: 10})


def test_the_user_bounds_batches_and_tasks(broker: KafkaBroker) -> None:
    topic = broker.topic("told", 2)
    fill(broker, topic, {0: 5_000, 1: 100})
    spark = Spark(broker, topic, BatchBounds(interval=10, most_records=3_000, parallelism=3, cores=2))
    first, sizes = ran(spark)
    assert (sum(sizes), len(sizes)) == (3_000, 3)
    assert first.decision.reason.endswith("maxOffsetsPerTrigger is 3,000; 3 tasks: scan.parallelism is set")
    ran(spark)
    assert spark.batch() is None
    assert spark.has_read({0: 5_000, 1: 100})


@pytest.mark.thorough
def test_available_now_reads_nothing_that_comes_later(broker: KafkaBroker) -> None:
    topic = broker.topic("until", 1)
    fill(broker, topic, {0: 12_000})
    spark = Spark(broker, topic)
    spark.reader.prepareForTriggerAvailableNow()
    fill(broker, topic, {0: 100}, first=12_000)
    assert [ran(spark)[0].decision.records for _ in range(2)] == [FIRST_RECORDS, 2_000]
    assert spark.batch() is None


def test_all_there_is_if_nobody_says_otherwise(broker: KafkaBroker) -> None:
    topic = broker.topic("all", 1)
    fill(broker, topic, {0: 12_000})
    spark = Spark(broker, topic, BatchBounds(cores=2))
    assert ran(spark)[0].decision.records == 12_000
    assert spark.reader.reportLatestOffset() == {"all-0": 12_000}


def test_a_checkpoint_of_an_earlier_release(broker: KafkaBroker) -> None:
    topic = broker.topic("earlier", 2)
    fill(broker, topic, {0: 3_000, 1: 10})
    spark = Spark(broker, topic)
    assert len(spark.reader.partitions({"earlier-0": 0}, {"earlier-0": 3_000, "earlier-1": 10})) == 2
    spark.end = {"earlier-0": 2_990, "earlier-1": 10}
    planned, sizes = ran(spark)
    assert (planned.decision.records, planned.ran, sizes) == (10, (), [10])


@pytest.mark.thorough
def test_records_behind_the_ends_that_the_broker_tells(broker: KafkaBroker) -> None:
    """They are looked for when nothing else is there to read."""
    topic = broker.topic("behind", 1)
    broker.fill(topic, {0: 500})
    spark = Spark(broker, topic)
    assert [ran(spark)[0].decision.records for _ in range(2)] == [1, 499]
    assert spark.batch() is None
    assert spark.has_read({0: 500})


@pytest.mark.parametrize("start", [None, {}])
def test_spark_that_tells_no_start(broker: KafkaBroker, start: Any) -> None:
    """Before Spark 4.2, a batch is all there is."""
    topic = broker.topic(f"untold{start is None}", 1)
    fill(broker, topic, {0: 20})
    reader = KafkaStreamReader(KafkaSource(broker.servers, topic), BatchBounds())
    end = reader.latestOffset() if start is None else reader.latestOffset(start)
    assert end[f"{topic}-0"] == 20
    assert len(reader.partitions({}, end)) == 1
