"""Spark data source ``penstock_kafka``, for Structured Streaming and for batch reads."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from penstock.config.option import DURATION, INT, Option
from penstock.config.options import DATA_VOLUME_PER_TASK, SCAN_INFER_MAX, SCAN_PARALLELISM
from penstock.connectors.kafka.offsets import OffsetRange, allocate_records, assign_ranges
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.kafka.streams.batch_duration_file import read_duration
from penstock.connectors.kafka.streams.micro_batches import BatchBounds, decide_batch, decide_tasks, most_records
from penstock.connectors.kafka.streams.offsets import PlannedBatch, offset_of, partition_offsets, planned_of
from penstock.connectors.kafka.streams.pace import MeasuredBatch, remember
from penstock.errors import SourceError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # since Spark 4.2
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Placeholder before Spark 4.2."""


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from penstock.connectors.kafka.streams.offsets import PartitionId

FORMAT = "penstock_kafka"
BATCH_INTERVAL = Option(
    "scan.batch-interval",
    DURATION,
    default=None,
    minimum=0.1,
    doc="How long a batch of a stream may take: the interval of its trigger. A batch then holds no more records than "
    "fit in it at the measured pace.",
)
MOST_OFFSETS = Option(
    "maxOffsetsPerTrigger",
    INT,
    default=None,
    minimum=1,
    doc="The most records of a batch of a stream, whatever the pace allows.",
)
_TYPED = {option.key.lower(): option for option in (BATCH_INTERVAL, MOST_OFFSETS, SCAN_PARALLELISM, SCAN_INFER_MAX)}
_REQUIRED = ("kafka.bootstrap.servers", "subscribe")
_SUPPORTED = (*_REQUIRED, "startingoffsets", *_TYPED)
_KAFKA = "kafka."
_TRIGGER_SECONDS = 0.1
"""Seconds around a multiple of the interval within which a call counts as caused by the trigger."""
_TRIGGER_FRACTION = 0.05
"""The same as a fraction of the interval; the smaller limit applies."""
_UNLIMITED = 1 << 62


class KafkaFormat(DataSource):
    """The data source, with the option names of Spark's own Kafka source.

    The options are ``kafka.bootstrap.servers``, ``subscribe``, ``startingOffsets`` (earliest or latest), and any
    ``kafka.`` property of librdkafka. The number of tasks follows the backlog, and hot partitions are split.
    ``scan.parallelism`` sets the number of tasks, and ``scan.infer-parallelism.max`` limits it. In a stream,
    ``scan.batch-interval`` sizes batches by the measured pace, and ``maxOffsetsPerTrigger`` limits them (both from
    Spark 4.2 on). Register the data source with ``spark.dataSource.register(KafkaFormat)``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of Spark's own Kafka source."""
        return source_of(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of a batch query."""
        return _BatchReader(source_of(self.options), bounds_of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of a streaming query."""
        bounds = bounds_of(self.options)
        limits = {"maxOffsetsPerTrigger": bounds.most_records, "scan.batch-interval": bounds.interval}
        ignored = [key for key, value in limits.items() if value is not None]
        if ignored and not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
            raise SourceError(
                f"{FORMAT}: {ignored[0]} would be ignored",
                cause="before Spark 4.2 a batch of a Python data source reads everything there is",
                hint="leave the option out, or use Spark 4.2",
            )
        return KafkaStreamReader(source_of(self.options), bounds)


@dataclass
class _BatchReader(DataSourceReader):
    source: KafkaSource
    bounds: BatchBounds

    def partitions(self) -> Sequence[InputPartition]:
        return tasks_of(self.source.ranges(), None, self.bounds) or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self.source, partition)


def source_of(options: Mapping[str, str]) -> KafkaSource:
    """Return the source that options describe; raise `SourceError` for unknown or missing options."""
    options = _validate(options)
    properties = {
        key.removeprefix(_KAFKA): value
        for key, value in options.items()
        if key.startswith(_KAFKA) and key != "kafka.bootstrap.servers"
    }
    topics = [topic.strip() for topic in options["subscribe"].split(",")]
    start = options.get("startingoffsets", "latest")
    return KafkaSource(options["kafka.bootstrap.servers"], topics, start=start, properties=properties)


def bounds_of(options: Mapping[str, str]) -> BatchBounds:
    """Return the bounds that options set on batches and tasks; raise `ConfigError` for an invalid value."""
    options = _validate(options)
    values = {
        key: option.parse(options[key], f"the options of {FORMAT}") for key, option in _TYPED.items() if key in options
    }

    def number(option: Option) -> int | None:
        value = values.get(option.key.lower())
        return None if value is None else int(str(value))

    interval = values.get(BATCH_INTERVAL.key)
    volume = int(str(DATA_VOLUME_PER_TASK.default))
    return BatchBounds(
        interval=None if interval is None else float(str(interval)),
        most_records=number(MOST_OFFSETS),
        parallelism=number(SCAN_PARALLELISM),
        most_tasks=number(SCAN_INFER_MAX),
        cores=os.cpu_count() or 1,  # of the driver: a Python data source cannot query the cluster
        records_per_task=max(1, volume // KafkaSource.record_bytes),
    )


def _validate(options: Mapping[str, str]) -> dict[str, str]:
    lowercase = {key.lower(): value for key, value in options.items()}
    unknown = [key for key in lowercase if key not in _SUPPORTED and not key.startswith(_KAFKA)]
    if unknown or not set(_REQUIRED) <= lowercase.keys():
        problem = f"unknown option {unknown[0]!r}" if unknown else f"no {' or no '.join(_REQUIRED)}"
        raise SourceError(f"{FORMAT}: {problem}", hint=f"supported are {', '.join(_SUPPORTED)} and kafka.*")
    return lowercase


def tasks_of(ranges: Sequence[OffsetRange], planned: PlannedBatch | None, bounds: BatchBounds) -> list[InputPartition]:
    """Return the ranges of each task: the planned number, or the number for its records, with about equal backlogs."""
    if planned is not None:
        tasks = planned.decision.tasks
    else:
        tasks, _ = decide_tasks(sum(r.backlog for r in ranges), len(ranges), bounds)
    return [InputPartition(task_ranges) for task_ranges in assign_ranges(ranges, tasks)]


def read_task(source: KafkaSource, partition: InputPartition) -> Iterator[Any]:
    """Yield the rows of a task, range after range, each in order.

    Each range has its own connection: a reassigned consumer first waits for outstanding responses of the old range.
    """
    for offset_range in partition.value:
        yield from source.read_split(offset_range, source.schema.fieldNames())


@dataclass(frozen=True, slots=True)
class _Running:
    """A planned batch, and the time at which its end was determined."""

    end: dict[str, Any]
    records: int
    start: float
    is_first: bool
    """Whether it is the first batch in this process, which includes compilation and the start of workers."""


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader; the lag and the measured pace determine the records and tasks of each batch.

    Spark calls this reader for the end of every batch, and again when the batch has run. So the time between two calls
    is the whole duration of a batch (planning, tasks, state, sink and logs), unless Spark waited for its trigger. The
    driver reports the duration of a batch before a wait, see `batch_duration_file`, if its session has called
    `start_query`.

    Without that report there is an upper bound. Triggers fire at multiples of their interval, so a call at such a time
    means that the batch took less. If a query has several topics, Spark calls the later readers after the earlier ones,
    but then a multiple of the interval after their previous call.

    `clock` returns the seconds since the epoch.
    """

    def __init__(self, source: KafkaSource, bounds: BatchBounds, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._bounds = bounds
        self._clock = clock
        self._initial: dict[str, Any] | None = None
        self._last_call: float | None = None
        self._ends: dict[PartitionId, int] = {}
        self._until: dict[PartitionId, int] | None = None
        self._running: _Running | None = None
        self._before: MeasuredBatch | None = None
        # Without an interval, durations have no effect.
        self._name = None if bounds.interval is None else uuid.uuid4().hex
        self._is_representative = True
        self._has_run = False

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query. Spark calls this twice for the first batch, so the offset is cached."""
        if self._initial is None:
            self._initial = offset_of({(r.topic, r.partition): r.start for r in self._source.ranges()})
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Exclude records that are written after this call."""
        self._until = {(r.topic, r.partition): r.end for r in self._source.ranges()}

    def getDefaultReadLimit(self) -> Any:
        """Return a limit if batches are limited; Spark passes ``ReadAllAvailable`` instead if it needs all records."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # since Spark 4.2

        if self._bounds.interval is None and self._bounds.most_records is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._bounds.most_records or _UNLIMITED)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return the end of the next batch. Spark 4.0 and 4.1 pass neither its start nor a limit."""
        now = self._clock()
        if start is None:
            if self._ends:  # never go back, as rows would be read twice: brokers may briefly report lower ends
                self._ends = self._source.ends_after(self._ends)
            else:
                self._ends = {(r.topic, r.partition): r.end for r in self._source.ranges()}
            return offset_of(self._ends)
        self._measure(start, now)
        self._last_call = now
        reached, earlier = partition_offsets(start), planned_of(start)
        ran = earlier.ran if earlier else ()
        if self._before is not None and self._is_representative:
            ran = remember(ran, self._before)
        is_limited = limit is None or hasattr(limit, "max_rows") or hasattr(limit, "maxRows")
        most = most_records(ran, self._bounds) if is_limited else None
        self._ends = self._source.ends_after(reached)
        start_time = self._clock()  # not before: `ends_after` may have waited for records
        if self._until is not None:
            self._ends = {partition: min(end, self._until.get(partition, 0)) for partition, end in self._ends.items()}
        waiting = {partition: max(end - reached.get(partition, 0), 0) for partition, end in self._ends.items()}
        lag = sum(waiting.values())
        if not lag:
            return start
        decision = decide_batch(lag, len(waiting), most, self._bounds)
        allocated = allocate_records(waiting, decision.records)
        end = offset_of(
            reached | {partition: reached.get(partition, 0) + count for partition, count in allocated.items()},
            PlannedBatch(decision, self._before, ran, self._name),
        )
        self._running, self._before = _Running(end, decision.records, start_time, not self._has_run), None
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the topics when the last batch was planned, for the query's progress."""
        return offset_of(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch: the decided number, with about equal backlogs.

        Raise `SourceError` if the batch ends before it begins. Before Spark 4.2, a new process cannot prevent that, as
        Spark does not pass it the previous offsets.
        """
        self._has_run = True
        start_offsets, ranges = partition_offsets(start), []
        for partition, last in sorted(partition_offsets(end).items()):
            first = start_offsets.get(partition, 0)
            if last < first:
                raise SourceError.gone(f"{partition[0]}-{partition[1]}", first, f"the broker reports the end {last}")
            ranges.append(OffsetRange(*partition, first, last))
        return tasks_of(ranges, planned_of(end), self._bounds)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a task."""
        return read_task(self._source, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the offsets are in Spark's checkpoint."""

    def _measure(self, start: dict[str, Any], now: float) -> None:
        """Measure the duration of the batch that has just ended, if this call is the first after it."""
        running, self._running = self._running, None
        if running is None or running.end != start:
            return  # no batch ran since the last call, or it began in another process
        reported = None if self._name is None or running.is_first else read_duration(self._name, running.end)
        waited = reported is None and self._bounds.interval is not None and self._is_on_time(now, self._bounds.interval)
        seconds = round(now - running.start, 3) if reported is None else reported
        self._before = MeasuredBatch(running.records, seconds, waited)
        self._is_representative = waited or not running.is_first

    def _is_on_time(self, now: float, interval: float) -> bool:
        """Return whether a call is at the time of a trigger, or a multiple of the interval after the previous call."""
        tolerance = min(_TRIGGER_SECONDS, _TRIGGER_FRACTION * interval)
        if now % interval < tolerance:
            return True
        intervals = 0.0 if self._last_call is None else (now - self._last_call) / interval
        return round(intervals) >= 1 and abs(intervals - round(intervals)) * interval < tolerance
