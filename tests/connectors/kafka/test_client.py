"""Ends of partitions and ranges, against librdkafka's simulated broker and with stub consumers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.services import require_module

require_module("confluent_kafka", "kafka")

from confluent_kafka import KafkaError, Producer

from penstock.connectors import KafkaSource
from penstock.connectors.kafka import client
from penstock.connectors.kafka.client import messages
from penstock.connectors.kafka.offsets import OffsetRange
from penstock.errors import SourceError, SourceTimeoutError

if TYPE_CHECKING:
    from confluent_kafka import Consumer


END = KafkaError._PARTITION_EOF


@pytest.fixture(scope="module")
def simulated() -> Iterator[str]:
    """The address of a broker with ten records in each of the first two partitions of topic `remade`."""
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for number in range(20):
        producer.produce("remade", value=str(number), partition=number % 2)
    assert producer.flush(10) == 0
    yield f"{broker.host}:{broker.port}"
    del producer  # it owns the broker


@dataclass
class Answer:
    """A message or error of partition 0, or an error of the client, which has no topic (None)."""

    at: int
    code: int | None = None
    of: str | None = "t"

    def topic(self) -> str | None:
        return self.of

    def partition(self) -> int:
        return -1 if self.of is None else 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


class Answers:
    """A stub consumer that returns a list of answers."""

    def __init__(self, answers: list[Answer]) -> None:
        self.remaining = answers

    def assign(self, _partitions: list[Any]) -> None:
        pass

    def consume(self, _limit: int, timeout: float) -> list[Answer]:
        if self.remaining:
            return [self.remaining.pop(0)]
        time.sleep(timeout)
        return []


class Slow:
    """A consumer whose first answer takes some seconds."""

    def __init__(self, other: Consumer, seconds: float) -> None:
        self.assign = other.assign
        self._other = other
        self._from = time.monotonic() + seconds

    def consume(self, limit: int, timeout: float) -> list[Any]:
        if time.monotonic() >= self._from:
            return self._other.consume(limit, timeout=timeout)
        time.sleep(timeout)
        return []


@pytest.mark.thorough
@pytest.mark.parametrize("reached", [{0: 10, 1: 50}, {0: 4, 1: 50}])
def test_a_topic_that_ends_before_the_last_offset_is_an_error(simulated: str, reached: dict[int, int]) -> None:
    """The topic was recreated or truncated. Its new records must not be skipped, whatever the other partition has."""
    source = KafkaSource(simulated, "remade")
    with pytest.raises(SourceError, match="records of remade-1 from offset 50 on no longer exist"):
        source.ends_after({("remade", partition): end for partition, end in reached.items()})


@pytest.mark.thorough
def test_a_late_response_about_a_recreated_topic_is_an_error(simulated: str) -> None:
    """New records of a recreated topic are not skipped if the broker responds late."""
    with client.consumer(simulated, {}) as slow:
        ends = {("remade", 0): 10, ("remade", 1): 50}
        with pytest.raises(SourceError, match="records of remade-1 from offset 50 on no longer exist"):
            client.probe_beyond(Slow(slow, 2.0), ends, {("remade", 1)})  # type: ignore[arg-type]


def test_a_broker_that_does_not_report_an_end_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "timeout", lambda: 0.5)
    with pytest.raises(SourceTimeoutError, match="t-0 has not answered"):
        client.probe_beyond(Answers([]), {("t", 0): 50}, {("t", 0)})  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._ALL_BROKERS_DOWN])
def test_errors_of_the_client_itself_are_ignored(code: int) -> None:
    answers = Answers([Answer(-1, code=code, of=None), Answer(50)])
    assert client.probe_beyond(answers, {("t", 0): 50}, ()) == {("t", 0): 51}  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTO_OFFSET_RESET])
@pytest.mark.parametrize(
    "probe",
    [
        lambda consumer: client.probed_ends(consumer, {("t", 0): (0, 50)}),
        lambda consumer: client.probe_beyond(consumer, {("t", 0): 50}, {("t", 0)}),
    ],
)
def test_permanent_errors_end_a_probe(probe: Callable[[Any], Any], code: int) -> None:
    with pytest.raises(SourceError, match="t-0"):
        probe(Answers([Answer(50, code=KafkaError._TRANSPORT), Answer(50, code=code)]))


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN])
def test_a_partition_whose_end_is_not_confirmed_times_out(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(client, "timeout", lambda: 0.8)
    with pytest.raises(SourceTimeoutError, match="t-1 has not answered"):
        client.probed_ends(
            cast("Consumer", Answers([Answer(50), Answer(51, code=code), Answer(51, code=END)])),
            {("t", 0): (0, 50), ("t", 1): (0, 7), ("t", 2): (0, 0)},
        )


@pytest.mark.parametrize(
    ("code", "fails"),
    [
        (KafkaError._TRANSPORT, False),
        (KafkaError._ALL_BROKERS_DOWN, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_only_permanent_errors_end_a_range(code: int, fails: bool) -> None:
    read = messages(cast("Consumer", Answers([Answer(0), Answer(1, code=code), Answer(1)])), OffsetRange("t", 0, 0, 2))
    if fails:
        with pytest.raises(SourceError, match="t-0 cannot be read further at offset 1"):
            list(read)
    else:
        assert [message.offset() for batch in read for message in batch] == [0, 1]


def test_the_ends_of_a_fully_read_topic_are_unchanged(simulated: str) -> None:
    ends = KafkaSource(simulated, "remade").ends_after({("remade", 0): 10, ("remade", 1): 10})
    assert (ends["remade", 0], ends["remade", 1]) == (10, 10)


@pytest.mark.parametrize(
    ("answers", "seen", "expected"),
    [
        ([Answer(0), Answer(2, END), Answer(2)], False, [0, 2]),
        ([Answer(0), Answer(1), Answer(3, END)], False, [0, 1]),
        ([Answer(0), Answer(1), Answer(3, END), Answer(2)], True, [0, 1, 2]),
        ([Answer(0), Answer(1), Answer(4)], False, [0, 1]),
    ],
    ids=["an end before that of the range", "a gap at the end", "a record at the end", "a gap before the next record"],
)
def test_a_range_ends_at_gaps_and_partition_ends(answers: list[Answer], seen: bool, expected: list[int]) -> None:
    consumer = Answers(list(answers))
    read = messages(cast("Consumer", consumer), OffsetRange("t", 0, 0, 3, is_last_seen=seen))
    assert [message.offset() for batch in read for message in batch] == expected
    assert not consumer.remaining


def test_a_slow_reader_of_records_does_not_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "timeout", lambda: 0.2)
    answers = Answers([Answer(0), Answer(1, code=KafkaError._TRANSPORT), Answer(1)])
    offsets = []
    for batch in messages(cast("Consumer", answers), OffsetRange("t", 0, 0, 2)):
        time.sleep(0.3)
        offsets += [message.offset() for message in batch]
    assert offsets == [0, 1]
