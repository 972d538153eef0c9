"""Talking to brokers (``confluent-kafka``): which offsets there are, reading a range, and writing with receipts."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.connectors.timeouts import timeout
from penstock.errors import SinkError, SourceError, SourceTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from confluent_kafka import Consumer, KafkaError, Message, Producer

    from penstock.connectors.kafka.offsets import OffsetRange

_PATIENCE = 20.0
"""Seconds to wait for the receipts of what was written."""
_UNANSWERED = frozenset({"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT"})
_NEARLY = 0.9
_GROUP = "penstock"
_BATCH = 5000
_LOOK = 0.6
"""Seconds to look for records behind the ends that a broker tells; half a second may pass before it answers."""
_LOOK_AT_MOST = 5.0
"""Seconds after which what is still coming is taken to be new."""


@contextmanager
def consumer(servers: str, properties: Mapping[str, str]) -> Iterator[Consumer]:
    """Connect for reading; nothing is committed to the group."""
    from confluent_kafka import Consumer

    made = Consumer(
        {
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **properties,
            "bootstrap.servers": servers,
        }
    )
    try:
        yield made
    finally:
        made.close()


@contextmanager
def _asking(servers: str, what: str) -> Iterator[None]:
    """Turn the error of a question that no broker answered in the block into one that says so."""
    from confluent_kafka import KafkaException

    begun = time.monotonic()
    try:
        yield
    except KafkaException as error:
        problem = error.args[0]
        if problem.name() in _UNANSWERED and time.monotonic() - begun >= _NEARLY * timeout():
            raise SourceTimeoutError.of(f"the broker at {servers}", what, timeout(), str(problem)) from error
        raise SourceError(
            f"no broker of {servers} answers",
            cause=f"{what}: {problem}",
            hint="check the servers, their security settings, and the network",
        ) from error


def partitions_of(client: Consumer, topics: Sequence[str], servers: str) -> list[tuple[str, int]]:
    """Return the partitions of topics.

    Raises
    ------
    SourceError
        If a topic does not exist, or no broker answers.
    """
    found = []
    for topic in topics:
        with _asking(servers, f"asking for the partitions of {topic}"):
            told = client.list_topics(topic, timeout=timeout()).topics[topic]
        if told.error is not None or not told.partitions:
            raise SourceError(
                f"there is no topic {topic!r} at {servers}", cause=str(told.error or "it has no partitions")
            )
        found += [(topic, number) for number in sorted(told.partitions)]
    return found


def told_ends(
    client: Consumer, places: Sequence[tuple[str, int]], servers: str
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return of each partition the first offset, and the one behind the last, as the broker tells them."""
    from confluent_kafka import TopicPartition

    with _asking(servers, "asking for the ends of partitions"):
        return {place: client.get_watermark_offsets(TopicPartition(*place), timeout=timeout()) for place in places}


def ends_of(
    client: Consumer, told: Mapping[tuple[str, int], tuple[int, int]]
) -> dict[tuple[str, int], tuple[int, int, bool]]:
    """Return of each partition the first offset, the one behind the last, and whether the record before that was seen.

    Brokers may tell an end that lies before the last records, so what comes behind it is looked for.

    Parameters
    ----------
    told
        What the broker told, see `told_ends`.
    """
    from confluent_kafka import TopicPartition

    found = {place: (low, high, False) for place, (low, high) in told.items()}
    filled = [TopicPartition(*place, high) for place, (low, high) in told.items() if high > low]
    if not filled:
        return found
    client.assign(filled)
    latest, quiet = time.monotonic() + _LOOK_AT_MOST, time.monotonic() + _LOOK
    while time.monotonic() < min(quiet, latest):
        for message in client.consume(_BATCH, timeout=0.1):
            if message.error() is None:
                place = str(message.topic()), int(message.partition() or 0)
                low, end, _ = found[place]
                found[place] = low, max(end, (message.offset() or 0) + 1), True
                quiet = time.monotonic() + _LOOK
    return found


def found_behind(
    client: Consumer, ends: Mapping[tuple[str, int], int], doubtful: Collection[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return the ends of the first records that are found behind some offsets; empty if none come for a while.

    Parameters
    ----------
    ends
        The offsets.
    doubtful
        The partitions of which the broker tells less than that. They are waited for, whatever the others have.

    Raises
    ------
    SourceError
        If a partition does not go as far as its offset: its topic was made again, or cut.
    SourceTimeoutError
        If the broker does not say how far a doubtful partition goes.
    """
    from confluent_kafka import TopicPartition

    found: dict[tuple[str, int], int] = {}
    left, begun = set(doubtful), time.monotonic()
    client.assign([TopicPartition(*place, end) for place, end in ends.items()])
    while ends and (left or not found) and time.monotonic() - begun < (timeout() if left else _LOOK):
        for message in client.consume(_BATCH, timeout=0.1):
            place, problem = (str(message.topic()), int(message.partition() or 0)), message.error()
            if place not in ends:  # the client tells of itself
                continue
            if problem is None:
                found[place] = (message.offset() or 0) + 1
            elif problem.name() == "_AUTO_OFFSET_RESET":
                raise SourceError.gone(f"{place[0]}-{place[1]}", ends[place], str(problem))
            if problem is None or problem.name() == "_PARTITION_EOF":
                left.discard(place)
    for topic, partition in sorted(left):
        what = f"the broker tells a lower end than {ends[topic, partition]}, and does not say what is there"
        raise SourceTimeoutError.of(f"{topic}-{partition}", what, timeout())
    return found


def offsets_at(
    client: Consumer, places: Sequence[tuple[str, int]], milliseconds: int, servers: str
) -> dict[tuple[str, int], int]:
    """Return the first offsets at or after a time; -1 where there is none."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, partition, milliseconds) for topic, partition in places]
    with _asking(servers, "asking for the offsets of a time"):
        told = client.offsets_for_times(asked, timeout=timeout())
    return {(one.topic, one.partition): one.offset if one.offset >= 0 else -1 for one in told}


def messages(client: Consumer, wanted: OffsetRange) -> Iterator[list[Message]]:
    """Iterate over the records of a range, in batches.

    Reading stops by offset, as a range may have holes where records were compacted away.

    Raises
    ------
    SourceError
        If records are gone, the broker fails, or the end is not reached though there was a record.
    """
    from confluent_kafka import TopicPartition

    place = f"{wanted.topic}-{wanted.partition}"
    client.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
    position, quiet = wanted.start, time.monotonic()
    while position < wanted.end:
        batch: list[Message] = []
        # No more than are wanted: it would wait for a full batch.
        for message in client.consume(min(_BATCH, wanted.end - position), timeout=1.0):
            problem = message.error()
            if problem is None:
                quiet = time.monotonic()
                position = (message.offset() or 0) + 1
                if position <= wanted.end:
                    batch.append(message)
            elif problem.name() == "_PARTITION_EOF":
                if not wanted.seen and (message.offset() or 0) >= wanted.end:
                    position = wanted.end  # what is left of the range is a hole
            else:
                _check(problem, place, position)
        if batch:
            yield batch
        if time.monotonic() - quiet > timeout():
            raise SourceTimeoutError.of(place, f"it sends no records from offset {position} of {wanted.end}", timeout())


def _check(problem: KafkaError, place: str, position: int) -> None:
    if problem.name() == "_AUTO_OFFSET_RESET":
        raise SourceError.gone(place, position, str(problem))
    if problem.fatal() or problem.name() not in _UNANSWERED:  # the client itself tries those again
        raise SourceError(f"{place} cannot be read further at offset {position}", cause=str(problem))


def produce(servers: str, properties: Mapping[str, str], records: Iterator[Mapping[str, Any]]) -> int:
    """Write records, and wait for the receipt of each; return how many there were.

    Raises
    ------
    SinkError
        If one of them was not taken.
    """
    from confluent_kafka import Producer

    made = Producer({"enable.idempotence": True, "linger.ms": 20, **properties, "bootstrap.servers": servers})
    refused: list[str] = []
    taken = 0

    def receipt(error: Any, _message: Any) -> None:
        nonlocal taken
        if error is None:
            taken += 1
        else:
            refused.append(str(error))

    sent = 0
    for record in records:
        _offer(made, record, receipt)
        sent += 1
        if refused:
            break
        if not sent % _BATCH:
            made.poll(0)
    left = made.flush(_PATIENCE)
    if refused or left or taken < sent:
        raise SinkError(
            f"{sent - taken} of {sent} records were not accepted by {servers}",
            cause=refused[0] if refused else f"no receipt within {_PATIENCE:.0f} seconds",
            hint="records before them are in the topic: a rerun writes them again",
        )
    return taken


def put(made: Producer, record: Mapping[str, Any], refused: list[str]) -> None:
    """Give a record to a producer; what becomes of those that are not taken is added to `refused`, later."""

    def receipt(error: Any, _message: Any) -> None:
        if error is not None:
            refused.append(str(error))

    _offer(made, record, receipt)


def _offer(made: Producer, record: Mapping[str, Any], receipt: Callable[[Any, Any], None]) -> None:
    while True:
        try:
            made.produce(**record, on_delivery=receipt)
            break
        except BufferError:  # the queue is full
            made.poll(0.1)


def record_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with Spark's columns of a topic as a producer takes it."""
    record = {name: _plain(value) for name, value in row.items() if value is not None and name != "headers"}
    record.setdefault("value", None)
    if row.get("headers"):
        record["headers"] = [(header["key"], _plain(header["value"])) for header in row["headers"]]
    return record


def _plain(value: Any) -> Any:
    """Return what Spark gives as a ``bytearray`` as bytes."""
    return bytes(value) if isinstance(value, bytearray) else value
