"""Topics as a format of Spark (``penstock_kafka``), for Structured Streaming and for plain reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from penstock.connectors.kafka.offsets import OffsetRange, cut_by_backlog
from penstock.connectors.kafka.source import KafkaSource
from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

FORMAT = "penstock_kafka"
_OPTIONS = ("kafka.bootstrap.servers", "subscribe", "startingoffsets", "maxoffsetspertrigger", "scan.parallelism")
_KAFKA = "kafka."


class KafkaFormat(DataSource):
    """The format; its options are named as those of Spark's own Kafka source.

    ``kafka.bootstrap.servers``, ``subscribe``, ``startingOffsets`` (earliest or latest), ``maxOffsetsPerTrigger`` (from
    Spark 4.2 on), ``scan.parallelism`` (tasks of a batch, hot partitions cut into several), and any ``kafka.`` property
    of librdkafka. Register it with ``spark.dataSource.register(KafkaFormat)``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of Spark's own Kafka source."""
        return _source(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return what reads a topic as it is now."""
        return _BatchReader(_source(self.options), _tasks(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return what reads a topic as it grows."""
        most = self.options.get("maxOffsetsPerTrigger")
        if most and not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
            raise SourceError(
                f"{FORMAT}: maxOffsetsPerTrigger would be ignored",
                cause="before Spark 4.2 a batch of a Python data source reads everything there is",
                hint="leave the option out, or use Spark 4.2",
            )
        return _StreamReader(_source(self.options), _tasks(self.options), int(most) if most else None)


def _source(options: Mapping[str, str]) -> KafkaSource:
    given = {key.lower(): value for key, value in options.items()}
    unknown = [key for key in given if key not in _OPTIONS and not key.startswith(_KAFKA)]
    if unknown or not {"kafka.bootstrap.servers", "subscribe"} <= given.keys():
        found = f"unknown option {unknown[0]!r}" if unknown else "no kafka.bootstrap.servers or no subscribe"
        raise SourceError(f"{FORMAT}: {found}", hint=f"known are {', '.join(_OPTIONS)} and kafka.*")
    properties = {
        key.removeprefix(_KAFKA): value
        for key, value in given.items()
        if key.startswith(_KAFKA) and key != "kafka.bootstrap.servers"
    }
    topics = [topic.strip() for topic in given["subscribe"].split(",")]
    start = given.get("startingoffsets", "latest")
    return KafkaSource(given["kafka.bootstrap.servers"], topics, start=start, properties=properties)


def _tasks(options: Mapping[str, str]) -> int:
    return int(options.get("scan.parallelism", 0))


class _Range(InputPartition):
    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(None)
        self.offsets = offsets


def _read(source: KafkaSource, partition: InputPartition) -> Iterator[Any]:
    assert isinstance(partition, _Range)
    yield from source.read_split(partition.offsets, source.schema.fieldNames())


class _BatchReader(DataSourceReader):
    def __init__(self, source: KafkaSource, tasks: int) -> None:
        self._source = source
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        ranges = self._source.ranges()
        return [_Range(one) for one in cut_by_backlog(ranges, self._tasks or len(ranges))] or [_Range(ranges[0])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._source, partition)


class _StreamReader(DataSourceStreamReader):
    """Offsets of a stream are {"topic-partition": offset}."""

    def __init__(self, source: KafkaSource, tasks: int, most: int | None) -> None:
        self._source = source
        self._tasks = tasks
        self._most = most
        self._reached: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:
        self._reached = {_name(one): one.start for one in self._source.ranges()}
        return self._reached

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # since Spark 4.2

        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        """Return where the next batch ends; Spark 4.0 and 4.1 tell neither where it starts nor how long it may be."""
        most = self._most if limit is None else getattr(limit, "max_rows", getattr(limit, "maxRows", None))
        reached = self._reached if start is None else start
        ends = {_name(one): one.end for one in self._source.ranges()}
        if most is None or not reached:
            return ends
        waiting = {place: max(end - reached.get(place, 0), 0) for place, end in ends.items()}
        share = min(1.0, most / max(sum(waiting.values()), 1))
        return {place: reached.get(place, 0) + _rounded(waiting[place] * share) for place in ends}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._reached = dict(end)
        ranges = [
            OffsetRange(*_place(name), min(start.get(name, 0), until), until) for name, until in sorted(end.items())
        ]
        return [_Range(one) for one in cut_by_backlog(ranges, self._tasks or len(ranges))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._source, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept: Spark's checkpoint holds the offsets."""


def _rounded(count: float) -> int:
    return max(1, int(count)) if count > 0 else 0


def _name(one: OffsetRange) -> str:
    return f"{one.topic}-{one.partition}"


def _place(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)
