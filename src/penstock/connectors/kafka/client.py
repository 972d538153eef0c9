"""Client functions for brokers (``confluent-kafka``): offsets, reads of ranges, and acknowledged writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.timeouts import timeout
from penstock.errors import SinkError, SourceError, SourceTimeoutError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

    from penstock.connectors.kafka.offsets import OffsetRange

_ACKNOWLEDGEMENT_TIMEOUT = 20.0
"""Seconds to wait for the acknowledgements of written records."""
_UNREACHABLE = frozenset({"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT"})  # names of errors
_TIMEOUT_FRACTION = 0.9
"""The fraction of the timeout after which a failed request is reported as timed out."""
_GROUP = "penstock"  # the client library requires a consumer group
_MAX_BATCH_RECORDS = 5000
_PROBE_SECONDS = 0.6
"""A probe for records beyond a reported end stops after these seconds without a record; a broker may take 0.5 s."""
_MAX_PROBE_SECONDS = 5.0
"""The maximum seconds of a probe that reads records; records that arrive later count as new."""


@contextmanager
def consumer(servers: str, properties: Mapping[str, str]) -> Iterator[Consumer]:
    """Open a consumer that commits no offsets."""
    from confluent_kafka import Consumer

    client = Consumer(
        {
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **properties,
            "enable.partition.eof": True,  # without it, the ends of partitions are not confirmed
            "bootstrap.servers": servers,
        }
    )
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _request(servers: str, description: str) -> Iterator[None]:
    """Convert errors of the client to `SourceTimeoutError` if no broker responds in time, else to `SourceError`."""
    from confluent_kafka import KafkaException

    start = time.monotonic()
    try:
        yield
    except KafkaException as error:
        problem = error.args[0]
        if problem.name() in _UNREACHABLE and time.monotonic() - start >= _TIMEOUT_FRACTION * timeout():
            raise SourceTimeoutError.of(f"the broker at {servers}", description, timeout(), str(problem)) from error
        raise SourceError(
            f"no broker of {servers} answers",
            cause=f"{description}: {problem}",
            hint="check the servers, their security settings, and the network",
        ) from error


def partitions_of(client: Consumer, topics: Sequence[str], servers: str) -> list[tuple[str, int]]:
    """Return the partitions of topics; raise `SourceError` if a topic does not exist, or no broker answers."""
    partitions = []
    for topic in topics:
        with _request(servers, f"asking for the partitions of {topic}"):
            metadata = client.list_topics(topic, timeout=timeout()).topics[topic]
        if metadata.error is not None or not metadata.partitions:
            raise SourceError(
                f"there is no topic {topic!r} at {servers}", cause=str(metadata.error or "it has no partitions")
            )
        partitions += [(topic, number) for number in sorted(metadata.partitions)]
    return partitions


def reported_ends(
    client: Consumer, partitions: Sequence[tuple[str, int]], servers: str
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the low and high watermarks (first offset, and last offset + 1) that the broker reports, by partition."""
    from confluent_kafka import TopicPartition

    with _request(servers, "asking for the ends of partitions"):
        return {
            partition: client.get_watermark_offsets(TopicPartition(*partition), timeout=timeout())
            for partition in partitions
        }


def probed_ends(
    client: Consumer, reported: Mapping[tuple[str, int], tuple[int, int]]
) -> dict[tuple[str, int], tuple[int, int, bool]]:
    """Return the first offset, the end, and whether the record before the end was read, by partition.

    Brokers may report an end before the last records, so this function reads beyond the `reported` ends until the
    broker confirms the ends. Raise `SourceTimeoutError` if it sends neither a record nor a confirmation of a partition.
    """
    from confluent_kafka import TopicPartition

    ends = {partition: (low, high, False) for partition, (low, high) in reported.items()}
    pending = {partition for partition, (low, high) in reported.items() if high > low}
    client.assign([TopicPartition(*partition, ends[partition][1]) for partition in pending])
    start = quiet_until = time.monotonic()
    while pending or time.monotonic() < quiet_until:
        silent = [partition for partition in pending if not ends[partition][2]]
        if time.monotonic() - start > (timeout() if silent else _MAX_PROBE_SECONDS):
            _raise_if_silent(silent, "the broker does not confirm the end that it reports")
            break
        for message in client.consume(_MAX_BATCH_RECORDS, timeout=0.1):
            partition, problem = (str(message.topic()), int(message.partition() or 0)), message.error()
            if problem is None:
                low, end, _ = ends[partition]
                ends[partition] = low, max(end, (message.offset() or 0) + 1), True
                quiet_until = time.monotonic() + _PROBE_SECONDS
            elif problem.name() == "_PARTITION_EOF":
                pending.discard(partition)
            elif partition in ends:
                _raise_if_permanent(problem, f"{partition[0]}-{partition[1]}", ends[partition][1])
    return ends


def probe_beyond(
    client: Consumer, ends: Mapping[tuple[str, int], int], doubtful: Collection[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Try to read records beyond some offsets; return the new ends of those partitions that have such records.

    `doubtful` are the partitions for which the broker reports a lower end than in `ends`. The probe waits until the
    broker has confirmed the ends of these partitions. Raise `SourceTimeoutError` if it does not confirm an end, and
    `SourceError` if a partition ends before its offset, because its topic was recreated or truncated.
    """
    from confluent_kafka import TopicPartition

    new_ends: dict[tuple[str, int], int] = {}
    pending, start = set(doubtful), time.monotonic()
    client.assign([TopicPartition(*partition, end) for partition, end in ends.items()])
    while ends and (pending or not new_ends):
        if time.monotonic() - start >= (timeout() if pending else _PROBE_SECONDS):
            break
        for message in client.consume(_MAX_BATCH_RECORDS, timeout=0.1):
            partition, problem = (str(message.topic()), int(message.partition() or 0)), message.error()
            if partition not in ends:  # an event of the client library
                continue
            if problem is None:
                new_ends[partition] = (message.offset() or 0) + 1
            elif problem.name() != "_PARTITION_EOF":
                _raise_if_permanent(problem, f"{partition[0]}-{partition[1]}", ends[partition])
                continue
            pending.discard(partition)
    _raise_if_silent(pending, "the broker reports a lower end than before, and sends no records from there")
    return new_ends


def _raise_if_silent(partitions: Collection[tuple[str, int]], description: str) -> None:
    for topic, number in sorted(partitions):
        raise SourceTimeoutError.of(f"{topic}-{number}", description, timeout())


def offsets_at(
    client: Consumer, partitions: Sequence[tuple[str, int]], milliseconds: int, servers: str
) -> dict[tuple[str, int], int]:
    """Return the first offsets at or after a time (milliseconds since the epoch), by partition; -1 for none."""
    from confluent_kafka import TopicPartition

    times = [TopicPartition(topic, partition, milliseconds) for topic, partition in partitions]
    with _request(servers, "asking for the offsets of a time"):
        offsets = client.offsets_for_times(times, timeout=timeout())
    return {(entry.topic, entry.partition): entry.offset if entry.offset >= 0 else -1 for entry in offsets}


def messages(client: Consumer, offset_range: OffsetRange) -> Iterator[list[Message]]:
    """Yield the records of a range in batches.

    The end is detected by offset, not by count: compaction may have removed records. Raise `SourceError` if records
    are gone, the broker fails, or the partition ends before a record that was seen (`OffsetRange.is_last_seen`).
    """
    from confluent_kafka import TopicPartition

    partition = f"{offset_range.topic}-{offset_range.partition}"
    client.assign([TopicPartition(offset_range.topic, offset_range.partition, offset_range.start)])
    position, last_record = offset_range.start, time.monotonic()
    while position < offset_range.end:
        batch: list[Message] = []
        # Request at most as many records as the range has, because the client waits for the requested number.
        for message in client.consume(min(_MAX_BATCH_RECORDS, offset_range.end - position), timeout=1.0):
            problem = message.error()
            if problem is None:
                position = (message.offset() or 0) + 1
                if position <= offset_range.end:
                    batch.append(message)
            elif problem.name() == "_PARTITION_EOF":
                if not offset_range.is_last_seen and (message.offset() or 0) >= offset_range.end:
                    position = offset_range.end  # compaction has removed the last records of the range
            else:
                _raise_if_permanent(problem, partition, position)
        if batch:
            yield batch
            last_record = time.monotonic()  # the caller may have taken long
        elif time.monotonic() - last_record > timeout():
            raise SourceTimeoutError.of(
                partition, f"it sends no records from offset {position} of {offset_range.end}", timeout()
            )


def _raise_if_permanent(problem: KafkaError, partition: str, position: int) -> None:
    if problem.name() == "_AUTO_OFFSET_RESET":
        raise SourceError.missing_records(partition, position, str(problem))
    if problem.fatal() or problem.name() not in _UNREACHABLE:  # else the client library retries
        raise SourceError(f"{partition} cannot be read further at offset {position}", cause=str(problem))


def produce(servers: str, properties: Mapping[str, str], records: Iterator[Mapping[str, Any]]) -> int:
    """Write records, and wait until all are acknowledged; return their number. Raise `SinkError` for any failure."""
    from confluent_kafka import Producer

    producer = Producer({"enable.idempotence": True, "linger.ms": 20, **properties, "bootstrap.servers": servers})
    errors: list[str] = []
    acknowledged = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            errors.append(str(error))

    sent = 0
    for record in records:
        put(producer, record, on_delivery)
        sent += 1
        if errors:
            break
        if not sent % _MAX_BATCH_RECORDS:
            producer.poll(0)
    pending = producer.flush(_ACKNOWLEDGEMENT_TIMEOUT)
    if errors or pending or acknowledged < sent:
        raise SinkError(
            f"{sent - acknowledged} of {sent} records were not accepted by {servers}",
            cause=errors[0] if errors else f"no acknowledgement within {_ACKNOWLEDGEMENT_TIMEOUT:.0f} seconds",
            hint="the other records are in the topic: another run writes them again",
        )
    return acknowledged


def put(producer: Producer, record: Mapping[str, Any], on_delivery: Callable[[Any, Any], None]) -> None:
    """Queue a record in a producer, which later calls `on_delivery` with the error (or None) and the message."""
    while True:
        try:
            producer.produce(**record, on_delivery=on_delivery)
            break
        except BufferError:  # the queue is full
            producer.poll(0.1)


def record_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of Spark's Kafka columns as the arguments of ``Producer.produce``."""
    record = {name: _to_bytes(value) for name, value in row.items() if value is not None and name != "headers"}
    record.setdefault("value", None)
    if row.get("headers"):
        record["headers"] = [(header["key"], _to_bytes(header["value"])) for header in row["headers"]]
    return record


def _to_bytes(value: Any) -> Any:
    """Convert a ``bytearray`` of Spark to ``bytes``."""
    return bytes(value) if isinstance(value, bytearray) else value
