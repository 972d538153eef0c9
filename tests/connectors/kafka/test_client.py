"""What brokers answer: over librdkafka's own simulated broker, and with messages that the test makes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.services import needed_module

needed_module("confluent_kafka", "kafka")

from confluent_kafka import KafkaError, Producer

from penstock.connectors import KafkaSource
from penstock.connectors.kafka import client
from penstock.connectors.kafka.client import messages
from penstock.connectors.kafka.offsets import OffsetRange
from penstock.errors import SourceError, SourceTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer


END = KafkaError._PARTITION_EOF


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


@dataclass
class Answer:
    """A message of partition 0 with an offset, or with an error."""

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
    """A consumer that gets one answer after the other."""

    def __init__(self, answers: list[Answer]) -> None:
        self.left = answers

    def assign(self, _places: list[Any]) -> None:
        """Nothing depends on it."""

    def consume(self, _most: int, timeout: float) -> list[Answer]:
        if self.left:
            return [self.left.pop(0)]
        time.sleep(timeout)
        return []


class Late:
    """A consumer whose first answer takes a while."""

    def __init__(self, other: Consumer, seconds: float) -> None:
        self.assign = other.assign
        self._other = other
        self._from = time.monotonic() + seconds

    def consume(self, most: int, timeout: float) -> list[Any]:
        if time.monotonic() >= self._from:
            return self._other.consume(most, timeout=timeout)
        time.sleep(timeout)
        return []


@pytest.mark.thorough
@pytest.mark.parametrize("reached", [{0: 10, 1: 50}, {0: 4, 1: 50}])
def test_a_topic_that_no_longer_goes_as_far_as_was_read(simulated: str, reached: dict[int, int]) -> None:
    """It was made again or cut, and its new records must not be passed over, whatever else there is to read."""
    source = KafkaSource(simulated, "remade")
    with pytest.raises(SourceError, match="records of remade-1 from offset 50 on are gone"):
        source.ends_after({("remade", partition): end for partition, end in reached.items()})


@pytest.mark.thorough
def test_a_broker_that_takes_its_time(simulated: str) -> None:
    """New records of a topic that was made again are not passed over, however late the answer about them comes."""
    with client.consumer(simulated, {}) as slow:
        ends = {("remade", 0): 10, ("remade", 1): 50}
        with pytest.raises(SourceError, match="records of remade-1 from offset 50 on are gone"):
            client.found_behind(Late(slow, 2.0), ends, {("remade", 1)})  # type: ignore[arg-type]


def test_a_broker_that_does_not_say_how_far_a_partition_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "timeout", lambda: 0.5)
    with pytest.raises(SourceTimeoutError, match="t-0 has not answered"):
        client.found_behind(Answers([]), {("t", 0): 50}, {("t", 0)})  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._ALL_BROKERS_DOWN])
def test_what_the_client_tells_of_itself_is_about_no_partition(code: int) -> None:
    answers = Answers([Answer(-1, code=code, of=None), Answer(50)])
    assert client.found_behind(answers, {("t", 0): 50}, ()) == {("t", 0): 51}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "fails"),
    [
        (KafkaError._TRANSPORT, False),
        (KafkaError._ALL_BROKERS_DOWN, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_only_what_does_not_pass_ends_a_range(code: int, fails: bool) -> None:
    read = messages(cast("Consumer", Answers([Answer(0), Answer(1, code=code), Answer(1)])), OffsetRange("t", 0, 0, 2))
    if fails:
        with pytest.raises(SourceError, match="t-0 cannot be read further at offset 1"):
            list(read)
    else:
        assert [one.offset() for batch in read for one in batch] == [0, 1]


def test_a_topic_that_was_read_to_its_end(simulated: str) -> None:
    found = KafkaSource(simulated, "remade").ends_after({("remade", 0): 10, ("remade", 1): 10})
    assert (found["remade", 0], found["remade", 1]) == (10, 10)


@pytest.mark.parametrize(
    ("answers", "seen", "expected"),
    [
        ([Answer(0), Answer(2, END), Answer(2)], False, [0, 2]),
        ([Answer(0), Answer(1), Answer(3, END)], False, [0, 1]),
        ([Answer(0), Answer(1), Answer(3, END), Answer(2)], True, [0, 1, 2]),
        ([Answer(0), Answer(1), Answer(4)], False, [0, 1]),
    ],
    ids=["an end before the range's", "a hole at the end", "a record was seen there", "a hole before the next record"],
)
def test_where_a_range_ends(answers: list[Answer], seen: bool, expected: list[int]) -> None:
    asked = Answers(list(answers))
    read = messages(cast("Consumer", asked), OffsetRange("t", 0, 0, 3, seen=seen))
    assert [one.offset() for batch in read for one in batch] == expected
    assert not asked.left
