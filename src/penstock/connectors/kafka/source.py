"""Topics as sources: as many tasks as the backlog makes, a hot partition cut into several."""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.arguments import check_members, check_settings, check_text
from penstock.connectors.base import ParallelismInferenceContext, ScanContext, checked_parallelism
from penstock.connectors.extras import needs
from penstock.connectors.kafka import client
from penstock.connectors.kafka.offsets import OffsetRange, cut_by_backlog, tasks_for
from penstock.connectors.split_source import SplitSource, arrow_schema
from penstock.errors import SourceError
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from confluent_kafka import Consumer, Message
    from pyspark.sql.types import StructType

Place = str | dt.datetime | Mapping[tuple[str, int], int]
"""``earliest``, ``latest``, a time, or an offset for every partition, by (topic, partition)."""
_RECORD_BYTES = 1024
_FRESH = 30.0
"""Seconds for which offsets that were found to infer the parallelism are those that the splits are made of."""


@dataclass(frozen=True)
class KafkaSource(SplitSource):
    """Topics of brokers that speak Kafka's protocol. Its columns are those of Spark's own Kafka source.

    Parameters
    ----------
    servers
        The brokers, as ``host:port`` separated by commas.
    topics
        A topic, or several.
    start, end
        ``earliest``, ``latest``, a time, or an offset for each (topic, partition). `end` is fixed when the job runs.
    properties
        Further properties of librdkafka's consumer.
    record_bytes
        About how large a record is: brokers tell only how many there are.
    parallelism
        The number of tasks, instead of what the backlog suggests.
    """

    servers: str
    topics: str | Sequence[str]
    start: Place = "earliest"
    end: Place = "latest"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    record_bytes: int = _RECORD_BYTES
    parallelism: int | None = None
    _asked: deque[tuple[float, list[OffsetRange]]] = field(
        default_factory=lambda: deque(maxlen=1), init=False, repr=False, compare=False
    )
    """What was found when the parallelism was inferred: the splits are made of the same offsets."""

    def __post_init__(self) -> None:
        check_text(self.servers, "KafkaSource", "servers, which are a text such as host:9092")
        if not isinstance(self.topics, str):
            check_members(self.topics, str, "KafkaSource", "names of topics")
        check_settings(self.properties, f"the properties of topic {self.name}")
        for place in (self.start, self.end):
            if isinstance(place, str) and place not in {"earliest", "latest"}:
                raise SourceError(
                    f"{place!r} is not a position in a topic", hint="give earliest, latest, a time, or offsets"
                )
        for value in (self.parallelism, self.record_bytes):
            if value is not None:
                checked_parallelism(value, f"topic {self.name}")

    @property
    def name(self) -> str:
        """The topics."""
        return self.topics if isinstance(self.topics, str) else ", ".join(self.topics)

    @property
    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source."""
        return _schema()

    def ranges(self) -> list[OffsetRange]:
        """Return the offsets to read of each partition, as they are now.

        Raises
        ------
        SourceError
            If a topic does not exist, no broker answers, or an offset lies outside of what there is.
        """
        with self._asked_for() as (asked, told):
            ends = client.ends_of(asked, told)
            first = self._offsets(asked, self.start, ends)
            last = self._offsets(asked, self.end, ends)
        found = []
        for place, (_, end, seen) in ends.items():
            last_offset = max(first[place], last[place])
            found.append(OffsetRange(*place, first[place], last_offset, seen=seen and last_offset == end))
        return found

    def ends_after(self, reached: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return offsets behind records of each partition, as far as is known at once.

        What the broker tells, if it tells of more than was reached: what lies behind comes with the next call. Records
        behind the ends are looked for, which takes a while, only if it tells of nothing more, and in partitions of
        which it tells less than was reached.

        Parameters
        ----------
        reached
            What was read of each partition.

        Raises
        ------
        SourceError
            If a partition does not go as far as was reached.
        """
        with self._asked_for() as (asked, told):
            ends = {place: max(high, reached.get(place, 0)) for place, (_, high) in told.items()}
            doubtful = {place: end for place, end in ends.items() if told[place][1] < end}
            is_more = any(ends[place] > reached.get(place, 0) for place in ends)
            looked_at = doubtful if is_more else {place: end for place, end in ends.items() if end}
            return ends | client.found_behind(asked, looked_at, doubtful)

    @contextmanager
    def _asked_for(self) -> Iterator[tuple[Consumer, dict[tuple[str, int], tuple[int, int]]]]:
        """Connect, and ask for the ends of all partitions."""
        needs("confluent_kafka", "kafka", SourceError)
        topics = [self.topics] if isinstance(self.topics, str) else list(self.topics)
        with client.consumer(self.servers, self.properties) as asked:
            places = client.partitions_of(asked, topics, self.servers)
            yield asked, client.told_ends(asked, places, self.servers)

    def _offsets(
        self, asked: Consumer, wanted: Place, ends: Mapping[tuple[str, int], tuple[int, int, bool]]
    ) -> dict[tuple[str, int], int]:
        if isinstance(wanted, str):
            return {place: low if wanted == "earliest" else high for place, (low, high, _) in ends.items()}
        if isinstance(wanted, dt.datetime):
            found = client.offsets_at(asked, list(ends), int(wanted.timestamp() * 1000), self.servers)
            return {place: found[place] if found[place] >= 0 else ends[place][1] for place in ends}
        for place, offset in wanted.items():
            low, high, _ = ends.get(place, (0, -1, False))
            if not low <= offset <= high:
                raise SourceError(
                    f"offset {offset} of {place[0]}-{place[1]} does not exist",
                    cause=f"there are offsets {low} to {high}" if place in ends else "there is no such partition",
                )
        return {place: wanted.get(place, low) for place, (low, _, _) in ends.items()}

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the tasks of the volume per task that the backlog makes."""
        bound = context.parallelism_inference_upper_bound
        ranges = self.ranges()
        self._asked.append((time.monotonic(), ranges))
        return tasks_for(ranges, self.record_bytes, context.data_volume_per_task, bound)

    @property
    def reason(self) -> str:
        """What the number was inferred from."""
        return f"from the topic's backlog, at {show_bytes(self.record_bytes)} per record"

    def enumerate_splits(self, context: ScanContext) -> Sequence[OffsetRange]:
        """Return ranges of offsets, none of them larger than a task's share of the backlog."""
        asked, ranges = self._asked.pop() if self._asked else (-_FRESH, [])
        if time.monotonic() - asked > _FRESH:
            ranges = self.ranges()
        wanted = tasks_for(ranges, self.record_bytes, context.data_volume_per_task, context.parallelism)
        return cut_by_backlog(ranges, max(wanted, min(context.parallelism, len(ranges))))

    def split_size(self, split: Any) -> int:
        """Return how many offsets a split has."""
        return int(split.backlog)

    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a range of offsets to its end."""
        with client.consumer(self.servers, self.properties) as connected:
            for batch in client.messages(connected, split):
                yield record_batch(batch, columns)


def _schema() -> StructType:
    """Return the columns of Spark's own Kafka source; written out, as tasks have no session to parse them with."""
    from pyspark.sql import types as T

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


def record_batch(batch: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    """Return records as Arrow, with some columns of the source."""
    import pyarrow as pa

    wanted = arrow_schema(_schema(), columns)
    arrays = [pa.array([_VALUES[field.name](one) for one in batch], field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _headers(message: Any) -> list[dict[str, Any]] | None:
    found = message.headers()
    return None if not found else [{"key": key, "value": value} for key, value in found]


_VALUES: dict[str, Any] = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: message.timestamp()[1] * 1000,
    "timestampType": lambda message: max(message.timestamp()[0] - 1, -1),
    "headers": _headers,
}
