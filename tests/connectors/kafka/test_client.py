"""What brokers answer: over librdkafka's own simulated broker, and with messages that the test makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.services import needed_module

needed_module("confluent_kafka", "kafka")

from confluent_kafka import KafkaError, Producer

from penstock.connectors import KafkaSource
from penstock.connectors.kafka.client import messages
from penstock.connectors.kafka.offsets import OffsetRange
from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer


@pytest.fixture(scope="module")
def simulated() -> Iterator[str]:
    """Return the address of a broker with ten records in each of the topic's first two partitions."""
    made = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = made.list_topics(timeout=10).brokers.values()
    for number in range(20):
        made.produce("remade", value=str(number), partition=number % 2)
    assert made.flush(10) == 0
    yield f"{broker.host}:{broker.port}"
    del made  # the broker lives as long as its producer


@pytest.mark.parametrize("reached", [{0: 10, 1: 50}, {0: 4, 1: 50}])
def test_a_topic_that_no_longer_goes_as_far_as_was_read(simulated: str, reached: dict[int, int]) -> None:
    """It was made again or cut, and its new records must not be passed over, whatever else there is to read."""
    source = KafkaSource(simulated, "remade")
    with pytest.raises(SourceError, match="records of remade-1 from offset 50 on are gone"):
        source.ends_after({("remade", partition): end for partition, end in reached.items()})


def test_a_topic_that_was_read_to_its_end(simulated: str) -> None:
    found = KafkaSource(simulated, "remade").ends_after({("remade", 0): 10, ("remade", 1): 10})
    assert (found["remade", 0], found["remade", 1]) == (10, 10)


@dataclass
class Answer:
    """A message with an offset; one that tells of the end of its partition if `is_end`."""

    at: int
    is_end: bool = False

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None


class Answers:
    """A consumer that gets one answer after the other."""

    def __init__(self, answers: list[Answer]) -> None:
        self.left = answers

    def assign(self, _places: list[Any]) -> None:
        """Nothing depends on it."""

    def consume(self, _most: int, timeout: float) -> list[Answer]:
        return [self.left.pop(0)]


@pytest.mark.parametrize(
    ("answers", "seen", "expected"),
    [
        ([Answer(0), Answer(2, is_end=True), Answer(2)], False, [0, 2]),
        ([Answer(0), Answer(1), Answer(3, is_end=True)], False, [0, 1]),
        ([Answer(0), Answer(1), Answer(3, is_end=True), Answer(2)], True, [0, 1, 2]),
        ([Answer(0), Answer(1), Answer(4)], False, [0, 1]),
    ],
    ids=["an end before the range's", "a hole at the end", "a record was seen there", "a hole before the next record"],
)
def test_where_a_range_ends(answers: list[Answer], seen: bool, expected: list[int]) -> None:
    client = Answers(list(answers))
    read = messages(cast("Consumer", client), OffsetRange("t", 0, 0, 3, seen=seen))
    assert [one.offset() for batch in read for one in batch] == expected
    assert not client.left
