"""Spark data source ``penstock_kafka``, for Structured Streaming and for batch reads."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from penstock.config.option import DURATION, INT, Option
from penstock.config.options import DATA_VOLUME_PER_TASK, SCAN_INFER_MAX, SCAN_PARALLELISM
from penstock.connectors.kafka.offsets import OffsetRange, allocate_records, assign_ranges
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.kafka.streams.batch_duration_file import read_duration
from penstock.connectors.kafka.streams.micro_batches import BatchBounds, decide_batch, decide_tasks, max_records
from penstock.connectors.kafka.streams.offsets import PlannedBatch, partition_offsets, planned_batch_of, to_offset
from penstock.connectors.kafka.streams.pace import MeasuredBatch, remember
from penstock.errors import SourceError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # since Spark 4.2
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Placeholder before Spark 4.2."""


if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.connectors.kafka.streams.offsets import PartitionId

FORMAT = "penstock_kafka"
BATCH_INTERVAL = Option(
    "scan.batch-interval",
    DURATION,
    default=None,
    minimum=0.1,
    doc="How long a batch of a stream may take: the interval of its trigger. A batch then has no more records than "
    "fit in this interval at the measured pace.",
)
MAX_OFFSETS = Option(
    "maxOffsetsPerTrigger",
    INT,
    default=None,
    minimum=1,
    doc="The maximum number of records of a batch of a stream, even if the pace allows more.",
)
_PARSED = {option.key.lower(): option for option in (BATCH_INTERVAL, MAX_OFFSETS, SCAN_PARALLELISM, SCAN_INFER_MAX)}
_REQUIRED = ("kafka.bootstrap.servers", "subscribe")
_SUPPORTED = (*_REQUIRED, "startingoffsets", *_PARSED)
_KAFKA_PREFIX = "kafka."
_TRIGGER_SECONDS = 0.1
"""Maximum seconds between a multiple of the interval and a call that counts as caused by the trigger."""
_TRIGGER_FRACTION = 0.05
"""The same tolerance as a fraction of the interval; the smaller tolerance applies."""
_UNLIMITED = 1 << 62  # records; `ReadAllAvailable` would disable the limit by the pace


class KafkaFormat(DataSource):
    """The data source, with the option names of Spark's own Kafka source.

    The options are ``kafka.bootstrap.servers``, ``subscribe``, ``startingOffsets`` (earliest or latest), and any
    ``kafka.`` property of librdkafka. The number of tasks follows the backlog, and hot partitions are split.
    ``scan.parallelism`` sets the number of tasks, and ``scan.infer-parallelism.max`` limits it. In a stream,
    ``scan.batch-interval`` sizes batches by the measured pace (records per second), and ``maxOffsetsPerTrigger``
    limits them (both from Spark 4.2 on). Register it with ``spark.dataSource.register(KafkaFormat)``.
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
        limits = {"maxOffsetsPerTrigger": bounds.max_records, "scan.batch-interval": bounds.interval}
        ignored = [key for key, value in limits.items() if value is not None]
        if ignored and not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
            raise SourceError(
                f"{FORMAT}: {ignored[0]} would be ignored",
                cause="before Spark 4.2, a batch of a Python data source reads all available records",
                hint="leave the option out, or use Spark 4.2",
            )
        return KafkaStreamReader(source_of(self.options), bounds)


@dataclass
class _BatchReader(DataSourceReader):
    source: KafkaSource
    bounds: BatchBounds

    def partitions(self) -> Sequence[InputPartition]:
        return tasks_of(self.source.ranges(), None, self.bounds) or [InputPartition([])]  # Spark requires a partition

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self.source, partition)


def source_of(options: Mapping[str, str]) -> KafkaSource:
    """Return the source that options describe; raise `SourceError` for unknown or missing options."""
    options = _validate(options)
    properties = {
        key.removeprefix(_KAFKA_PREFIX): value
        for key, value in options.items()
        if key.startswith(_KAFKA_PREFIX) and key != "kafka.bootstrap.servers"
    }
    topics = [topic.strip() for topic in options["subscribe"].split(",")]
    start = options.get("startingoffsets", "latest")
    return KafkaSource(options["kafka.bootstrap.servers"], topics, start=start, properties=properties)


def bounds_of(options: Mapping[str, str]) -> BatchBounds:
    """Return the bounds that options set on batches and tasks; raise `ConfigError` for an invalid value."""
    options = _validate(options)
    values = {
        key: option.parse(options[key], f"the options of {FORMAT}") for key, option in _PARSED.items() if key in options
    }

    def number(option: Option) -> int | None:
        value = values.get(option.key.lower())
        return None if value is None else int(str(value))

    interval = values.get(BATCH_INTERVAL.key)
    volume = int(str(DATA_VOLUME_PER_TASK.default))
    return BatchBounds(
        interval=None if interval is None else float(str(interval)),
        max_records=number(MAX_OFFSETS),
        parallelism=number(SCAN_PARALLELISM),
        max_tasks=number(SCAN_INFER_MAX),
        cores=os.cpu_count() or 1,  # of the driver: a Python data source cannot query the cluster
        records_per_task=max(1, volume // KafkaSource.record_bytes),
    )


def _validate(options: Mapping[str, str]) -> dict[str, str]:
    lowercase = {key.lower(): value for key, value in options.items()}
    unknown = [key for key in lowercase if key not in _SUPPORTED and not key.startswith(_KAFKA_PREFIX)]
    if unknown or not set(_REQUIRED) <= lowercase.keys():
        problem = f"unknown option {unknown[0]!r}" if unknown else f"no {' or no '.join(_REQUIRED)}"
        raise SourceError(f"{FORMAT}: {problem}", hint=f"supported are {', '.join(_SUPPORTED)} and kafka.*")
    return lowercase


def tasks_of(ranges: Sequence[OffsetRange], planned: PlannedBatch | None, bounds: BatchBounds) -> list[InputPartition]:
    """Return an `InputPartition` per task, with about equal backlogs; if `planned` is None, decide their number."""
    if planned is not None:
        tasks = planned.decision.tasks
    else:
        tasks, _ = decide_tasks(sum(r.backlog for r in ranges), len(ranges), bounds)
    return [InputPartition(task_ranges) for task_ranges in assign_ranges(ranges, tasks)]


def read_task(source: KafkaSource, partition: InputPartition) -> Iterator[Any]:
    """Yield the rows of a task as Arrow batches, range by range, each in the order of offsets.

    Each range has a separate connection: a reassigned consumer would wait for outstanding responses of the old range.
    """
    for offset_range in partition.value:
        yield from source.read_split(offset_range, source.schema.fieldNames())


@dataclass(frozen=True, slots=True)
class _RunningBatch:
    """A running batch: its end offset, number of records, and time of planning (`start`, seconds since the epoch)."""

    end: dict[str, Any]
    records: int
    start: float
    is_first: bool
    """Whether it is the first batch in this process, whose duration includes compilation and the start of workers."""


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader; the lag and the measured pace determine the records and tasks of each batch.

    Spark calls `latestOffset` to determine the end of every batch, and again when the batch has run. So the time
    between two calls is the whole duration of a batch (planning, tasks, state, sink and logs), unless Spark has waited
    for its trigger. If the session has called `start_query`, the driver reports the duration without the wait, see
    `batch_duration_file`.

    Without that report, the time counts as an upper bound if Spark may have waited. Triggers fire at multiples of their
    interval, so Spark may have waited if a call is near such a time. In a query with several readers, Spark calls them
    in turn, so it may also have waited if a call is about a multiple of the interval after the previous call.

    `clock` returns the seconds since the epoch.
    """

    def __init__(self, source: KafkaSource, bounds: BatchBounds, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._bounds = bounds
        self._clock = clock
        self._initial_offset: dict[str, Any] | None = None
        self._last_call: float | None = None
        self._ends: dict[PartitionId, int] = {}
        self._max_ends: dict[PartitionId, int] | None = None
        self._running: _RunningBatch | None = None
        self._previous_batch: MeasuredBatch | None = None
        # Without an interval, durations have no effect: a reader without a name tells the driver not to report them.
        self._reader_name = None if bounds.interval is None else uuid.uuid4().hex
        self._is_representative = True  # whether the previous batch may determine the pace
        self._has_run = False  # whether a batch has run in this process

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query. Spark calls this twice for the first batch, and needs equal results."""
        if self._initial_offset is None:
            self._initial_offset = to_offset({(r.topic, r.partition): r.start for r in self._source.ranges()})
        return self._initial_offset

    def prepareForTriggerAvailableNow(self) -> None:
        """Exclude records that are written after this call."""
        self._max_ends = {(r.topic, r.partition): r.end for r in self._source.ranges()}

    def getDefaultReadLimit(self) -> Any:
        """Return the limit that Spark passes to `latestOffset`, except when it requests ``ReadAllAvailable``."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # since Spark 4.2

        if self._bounds.interval is None and self._bounds.max_records is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._bounds.max_records or _UNLIMITED)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return the end of the next batch. Spark 4.0 and 4.1 pass neither the start of the batch nor a limit."""
        now = self._clock()
        if start is None:
            if self._ends:  # brokers may briefly report lower ends, after which rows would be read twice
                self._ends = self._source.ends_after(self._ends)
            else:
                self._ends = {(r.topic, r.partition): r.end for r in self._source.ranges()}
            return to_offset(self._ends)
        self._measure(start, now)
        self._last_call = now
        reached, ended_batch = partition_offsets(start), planned_batch_of(start)
        measured = ended_batch.measured_batches if ended_batch else ()
        if self._previous_batch is not None and self._is_representative:
            measured = remember(measured, self._previous_batch)
        # Only `ReadAllAvailable` is unlimited. The name of the field of `ReadMaxRows` depends on the release of Spark.
        is_limited = limit is None or hasattr(limit, "max_rows") or hasattr(limit, "maxRows")
        record_maximum = max_records(measured, self._bounds) if is_limited else None
        self._ends = self._source.ends_after(reached)
        start_time = self._clock()  # after `ends_after`, which may have waited for records
        if self._max_ends is not None:
            self._ends = {
                partition: min(end, self._max_ends.get(partition, 0)) for partition, end in self._ends.items()
            }
        backlogs = {partition: max(end - reached.get(partition, 0), 0) for partition, end in self._ends.items()}
        lag = sum(backlogs.values())
        if not lag:
            return start
        decision = decide_batch(lag, len(backlogs), record_maximum, self._bounds)
        allocated = allocate_records(backlogs, decision.records)
        end = to_offset(
            reached | {partition: reached.get(partition, 0) + count for partition, count in allocated.items()},
            PlannedBatch(decision, self._previous_batch, measured, self._reader_name),
        )
        self._running, self._previous_batch = _RunningBatch(end, decision.records, start_time, not self._has_run), None
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the partitions when the last batch was planned, for the query's progress."""
        return to_offset(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch: the decided number, with about equal backlogs.

        Raise `SourceError` if an end offset is below its start offset. Before Spark 4.2, a reader cannot prevent
        that after a restart of its query, because Spark does not pass the previous offsets to `latestOffset`.
        """
        self._has_run = True
        start_offsets, ranges = partition_offsets(start), []
        for partition, last in sorted(partition_offsets(end).items()):
            first = start_offsets.get(partition, 0)
            if last < first:
                name, cause = f"{partition[0]}-{partition[1]}", f"the broker reports the end {last}"
                raise SourceError.missing_records(name, first, cause)
            ranges.append(OffsetRange(*partition, first, last))
        return tasks_of(ranges, planned_batch_of(end), self._bounds)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a task."""
        return read_task(self._source, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the offsets are in Spark's checkpoint."""

    def _measure(self, start: dict[str, Any], now: float) -> None:
        """Measure the duration of the batch that has just ended, if this is the first call since then."""
        running, self._running = self._running, None
        if running is None or running.end != start:
            return  # no batch has run since the last call, or the batch began in another process
        name, interval = self._reader_name, self._bounds.interval
        reported = None if name is None or running.is_first else read_duration(name, running.end)
        waited = reported is None and interval is not None and self._is_trigger_time(now, interval)
        seconds = round(now - running.start, 3) if reported is None else reported
        self._previous_batch = MeasuredBatch(running.records, seconds, waited)
        # The first batch is slow and would lower the pace; but after a wait, the upper bound does not lower it.
        self._is_representative = waited or not running.is_first

    def _is_trigger_time(self, now: float, interval: float) -> bool:
        """Whether a call is at the time of a trigger, or a multiple of the interval after the previous call."""
        tolerance = min(_TRIGGER_SECONDS, _TRIGGER_FRACTION * interval)
        if now % interval < tolerance:
            return True
        intervals = 0.0 if self._last_call is None else (now - self._last_call) / interval
        return round(intervals) >= 1 and abs(intervals - round(intervals)) * interval < tolerance
