"""Kafka source: the number of tasks follows the backlog, and partitions with a large backlog are split."""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from penstock.base.arguments import check_members, check_settings, check_text
from penstock.base.units import show_bytes
from penstock.connectors.core.base import ParallelismInferenceContext, ScanContext, check_positive
from penstock.connectors.core.extras import require_module
from penstock.connectors.core.split_source import SplitSource, arrow_schema
from penstock.connectors.kafka import client
from penstock.connectors.kafka.offsets import OffsetRange, split_by_backlog, tasks_for
from penstock.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, Message
    from pyspark.sql.types import StructType

Position = str | dt.datetime | Mapping[tuple[str, int], int]
"""``earliest``, ``latest``, a time, or offsets by (topic, partition)."""
_DEFAULT_RECORD_BYTES = 1024
_MAX_INFERENCE_AGE = 30.0
"""Seconds for which the offsets of the parallelism inference are reused for the splits."""


@dataclass(frozen=True)
class KafkaSource(SplitSource):
    """Topics of Kafka-compatible brokers. The columns are those of Spark's own Kafka source.

    >>> KafkaSource("broker:9092", ["orders", "returns"], start={("orders", 0): 7, ("returns", 0): 0}).name
    'orders, returns'

    Parameters
    ----------
    servers
        The brokers, as ``host:port`` separated by commas.
    topics
        The name of a topic, or several names.
    start, end
        ``earliest``, ``latest``, a time, or offsets by (topic, partition), resolved at run time. `end` is exclusive.
    properties
        Further properties of librdkafka's consumer.
    record_bytes
        The estimated size of a record in bytes, as brokers report only numbers of records.
    parallelism
        The number of tasks; if None, inferred from the backlog.
    """

    servers: str
    topics: str | Sequence[str]
    start: Position = "earliest"
    end: Position = "latest"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    record_bytes: int = _DEFAULT_RECORD_BYTES
    parallelism: int | None = None
    _inferred: deque[tuple[float, list[OffsetRange]]] = field(
        default_factory=lambda: deque(maxlen=1), init=False, repr=False, compare=False
    )
    """The time (monotonic clock) and ranges of the last parallelism inference; `enumerate_splits` takes them."""

    def __post_init__(self) -> None:
        check_text(self.servers, "KafkaSource", "servers, which are a text such as host:9092")
        if not isinstance(self.topics, str):
            check_members(self.topics, str, "KafkaSource", "names of topics")
        check_settings(self.properties, f"the properties of topic {self.name}")
        for position in (self.start, self.end):
            if isinstance(position, str) and position not in {"earliest", "latest"}:
                raise SourceError(
                    f"{position!r} is not a position in a topic", hint="use earliest, latest, a time, or offsets"
                )
        check_positive(f"topic {self.name}", self.parallelism, self.record_bytes)

    @property
    def name(self) -> str:
        """The topics."""
        return self.topics if isinstance(self.topics, str) else ", ".join(self.topics)

    @property
    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source."""
        return _schema()

    def ranges(self) -> list[OffsetRange]:
        """Return the range of offsets to read from each partition; `latest` is resolved to the current end."""
        with self._connect() as (consumer, reported):
            ends = client.probed_ends(consumer, reported)
            starts = self._offsets(consumer, self.start, ends)
            requested_ends = self._offsets(consumer, self.end, ends)
        ranges = []
        for partition, (_, current_end, was_read) in ends.items():  # `was_read`: the record before the end was read
            end = max(starts[partition], requested_ends[partition])
            is_last_seen = was_read and end == current_end
            ranges.append(OffsetRange(*partition, starts[partition], end, is_last_seen=is_last_seen))
        return ranges

    def ends_after(self, reached: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return the current end of each partition, or an earlier end if the current end would take time to determine.

        `reached` has the end of the previous batch in each partition. A broker may report an end that is too low; only
        reading beyond this end, which takes time, shows the true end. This method does so for partitions whose reported
        end is below `reached`, and for all non-empty partitions if the broker reports no records beyond `reached`. For
        other partitions, a later call returns the true end. Raise `SourceError` if a partition ends before `reached`.
        """
        with self._connect() as (consumer, reported):
            ends = {partition: max(high, reached.get(partition, 0)) for partition, (_, high) in reported.items()}
            doubtful = {partition: end for partition, end in ends.items() if reported[partition][1] < end}
            has_more = any(ends[partition] > reached.get(partition, 0) for partition in ends)
            probed = doubtful if has_more else {partition: end for partition, end in ends.items() if end}
            return ends | client.probe_beyond(consumer, probed, doubtful)

    @contextmanager
    def _connect(self) -> Iterator[tuple[Consumer, dict[tuple[str, int], tuple[int, int]]]]:
        """Open a consumer, and yield it with the first offset and the end that the broker reports, by partition."""
        require_module("confluent_kafka", "kafka", SourceError)
        topics = [self.topics] if isinstance(self.topics, str) else list(self.topics)
        with client.consumer(self.servers, self.properties) as consumer:
            partitions = client.partitions_of(consumer, topics, self.servers)
            yield consumer, client.reported_ends(consumer, partitions, self.servers)

    def _offsets(
        self, consumer: Consumer, position: Position, ends: Mapping[tuple[str, int], tuple[int, int, bool]]
    ) -> dict[tuple[str, int], int]:
        """Resolve a position to an offset per partition (unlisted: the first); `ends` is from `client.probed_ends`."""
        if isinstance(position, str):
            return {partition: low if position == "earliest" else high for partition, (low, high, _) in ends.items()}
        if isinstance(position, dt.datetime):
            offsets = client.offsets_at(consumer, list(ends), int(position.timestamp() * 1000), self.servers)
            return {partition: offset if offset >= 0 else ends[partition][1] for partition, offset in offsets.items()}
        for partition, offset in position.items():
            low, high, _ = ends.get(partition, (0, -1, False))
            if not low <= offset <= high:
                raise SourceError(
                    f"offset {offset} of {partition[0]}-{partition[1]} does not exist",
                    cause=f"there are offsets {low} to {high}" if partition in ends else "there is no such partition",
                )
        return {partition: position.get(partition, low) for partition, (low, _, _) in ends.items()}

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of tasks for the backlog if each task reads `data_volume_per_task` bytes; at least 1."""
        bound = context.parallelism_inference_upper_bound
        ranges = self.ranges()
        self._inferred.append((time.monotonic(), ranges))
        return tasks_for(ranges, self.record_bytes, context.data_volume_per_task, bound)

    @property
    def reason(self) -> str:
        """The basis of the inferred parallelism, a clause."""
        return f"from the topic's backlog, at {show_bytes(self.record_bytes)} per record"

    def enumerate_splits(self, context: ScanContext) -> Sequence[OffsetRange]:
        """Return ranges of offsets, none of which exceeds a task's share of the backlog."""
        inferred_at, ranges = self._inferred.pop() if self._inferred else (-_MAX_INFERENCE_AGE, [])
        if time.monotonic() - inferred_at > _MAX_INFERENCE_AGE:
            ranges = self.ranges()
        tasks = tasks_for(ranges, self.record_bytes, context.data_volume_per_task, context.parallelism)
        return split_by_backlog(ranges, max(tasks, min(context.parallelism, len(ranges))))

    def split_size(self, split: Any) -> int:
        """Return the number of offsets of a split."""
        return int(split.backlog)

    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range of offsets as Arrow batches."""
        with client.consumer(self.servers, self.properties) as consumer:
            for messages in client.messages(consumer, split):
                yield record_batch(messages, columns)


def _schema() -> StructType:
    """Return the columns of Spark's own Kafka source, built without DDL: tasks have no session that could parse it."""
    header = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
    return T.StructType(
        [
            T.StructField("key", T.BinaryType()),
            T.StructField("value", T.BinaryType()),
            T.StructField("topic", T.StringType()),
            T.StructField("partition", T.IntegerType()),
            T.StructField("offset", T.LongType()),
            T.StructField("timestamp", T.TimestampType()),
            T.StructField("timestampType", T.IntegerType()),
            T.StructField("headers", T.ArrayType(header)),
        ]
    )


def record_batch(messages: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    """Return records as an Arrow batch with the requested columns."""
    import pyarrow as pa

    schema = arrow_schema(_schema(), columns)
    arrays = [pa.array([_COLUMN_GETTERS[field.name](message) for message in messages], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_COLUMN_GETTERS: dict[str, Any] = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: message.timestamp()[1] * 1000,  # milliseconds to microseconds
    "timestampType": lambda message: max(message.timestamp()[0] - 1, -1),  # Spark's numbers are lower by 1: -1 for none
    "headers": lambda message: [{"key": key, "value": value} for key, value in message.headers() or ()] or None,
}
