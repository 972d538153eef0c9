"""Stream reader of topics; the lag and the measured pace determine the records and tasks of each batch.

Spark calls this reader for the end of every batch, and again when the batch has run. So the time between two calls is
the whole duration of a batch (planning, tasks, state, sink and logs), unless Spark waited for its trigger. The driver
reports the duration of a batch before a wait, see `batch_duration_file`, if its session has called `start_query`.

Without that report there is an upper bound. Triggers fire at multiples of their interval, so a call at such a time
means that the batch took less. If a query has several topics, Spark calls the later readers after the earlier ones, but
then a multiple of the interval after their previous call.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from penstock.connectors.kafka.batch_duration_file import read_duration
from penstock.connectors.kafka.offsets import OffsetRange, allocate_records, assign_ranges
from penstock.connectors.kafka.stream_offsets import PlannedBatch, offset_of, partition_offsets, planned_of
from penstock.connectors.kafka.task_ranges import TaskRanges, read_task
from penstock.connectors.micro_batches import decide_batch, decide_tasks, most_records
from penstock.connectors.pace import MeasuredBatch, remember
from penstock.errors import SourceError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # since Spark 4.2
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Placeholder before Spark 4.2."""


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from penstock.connectors.kafka.source import KafkaSource
    from penstock.connectors.kafka.stream_offsets import PartitionId
    from penstock.connectors.micro_batches import BatchBounds

_TRIGGER_SECONDS = 0.1
"""Seconds around a multiple of the interval within which a call counts as caused by the trigger."""
_TRIGGER_FRACTION = 0.05
"""The same as a fraction of the interval; the smaller limit applies."""
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class _Running:
    """A planned batch, and the time at which its end was determined."""

    end: dict[str, Any]
    records: int
    start: float
    is_first: bool
    """Whether it is the first batch in this process, which includes compilation and the start of workers."""


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader that Spark calls for the offsets and splits of batches.

    Parameters
    ----------
    source
        The topics.
    bounds
        The user's bounds on batches and tasks.
    clock
        Returns the seconds since the epoch.
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
        self._name = (
            None if bounds.interval is None else uuid.uuid4().hex
        )  # without an interval, durations have no effect
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

        Raises
        ------
        SourceError
            If the batch ends before it begins. Before Spark 4.2, a new process cannot prevent that, as Spark does not
            pass it the previous offsets.
        """
        self._has_run = True
        start_offsets, ranges = partition_offsets(start), []
        for partition, last in sorted(partition_offsets(end).items()):
            first = start_offsets.get(partition, 0)
            if last < first:
                raise SourceError.gone(f"{partition[0]}-{partition[1]}", first, f"the broker reports the end {last}")
            ranges.append(OffsetRange(*partition, first, last))
        planned = planned_of(end)
        if planned is not None:
            tasks = planned.decision.tasks
        else:
            tasks, _ = decide_tasks(sum(r.backlog for r in ranges), len(ranges), self._bounds)
        return [TaskRanges(task_ranges) for task_ranges in assign_ranges(ranges, tasks)]

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
