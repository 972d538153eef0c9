"""Reads a topic as it grows: batch by batch, each as large and as wide as lag and pace ask for.

Spark asks this reader for the end of every batch, and asks again when the batch has run. So the time between two calls
is the whole time of a batch (planning, tasks, state, sink and logs), unless Spark waited for its trigger. What a batch
took that had to wait is told by the driver, see `told_times`, if its session has started a query by `start_query`.

If nobody tells it, a bound is known. Triggers fire at whole multiples of their interval, so a call at such a time means
that the batch took less. Of several topics in a query the later ones are asked only after the others, but then a whole
multiple of the interval after they were asked before.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from penstock.connectors.kafka.offsets import OffsetRange, part_of, shared_out
from penstock.connectors.kafka.stream_offsets import PlannedBatch, offset_of, places_of, planned_of
from penstock.connectors.kafka.task_ranges import TaskRanges, read_task
from penstock.connectors.kafka.told_times import told
from penstock.connectors.micro_batches import decide_batch, decide_tasks, most_records
from penstock.connectors.pace import RanBatch, remember
from penstock.errors import SourceError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # since Spark 4.2
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the interface of later releases."""


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from penstock.connectors.kafka.source import KafkaSource
    from penstock.connectors.kafka.stream_offsets import Place
    from penstock.connectors.micro_batches import BatchBounds

_ON_TIME = 0.1
"""Seconds around a multiple of the interval within which a call is taken to be the trigger's."""
_ON_TIME_PART = 0.05
"""The same as a part of the interval; the smaller one counts."""
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class _Running:
    """A batch that was handed out, and when its records were found."""

    end: dict[str, Any]
    records: int
    begun: float
    is_first: bool
    """Whether no batch ran in this process before: Spark still compiles, and starts its workers."""


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark asks for the offsets and the splits of batches.

    Parameters
    ----------
    source
        The topics.
    bounds
        What the user says about batches and tasks.
    clock
        Returns the seconds since the epoch.
    """

    def __init__(self, source: KafkaSource, bounds: BatchBounds, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._bounds = bounds
        self._clock = clock
        self._initial: dict[str, Any] | None = None
        self._called: float | None = None
        self._ends: dict[Place, int] = {}
        self._until: dict[Place, int] | None = None
        self._running: _Running | None = None
        self._before: RanBatch | None = None
        self._name = None if bounds.interval is None else uuid.uuid4().hex  # else times do not matter
        self._tells_pace = True
        self._has_run = False

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts; Spark asks twice for the first batch, and nothing may be between them."""
        if self._initial is None:
            self._initial = offset_of({(one.topic, one.partition): one.start for one in self._source.ranges()})
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Read nothing that is written from now on."""
        self._until = {(one.topic, one.partition): one.end for one in self._source.ranges()}

    def getDefaultReadLimit(self) -> Any:
        """Return that batches are limited, so that Spark can say otherwise."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # since Spark 4.2

        if self._bounds.interval is None and self._bounds.most_records is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._bounds.most_records or _UNLIMITED)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return where the next batch ends; Spark 4.0 and 4.1 tell neither where it starts nor how long it may be."""
        now = self._clock()
        if start is None:
            if self._ends:  # never go back, or rows would be read twice: brokers may tell less for a moment
                self._ends = self._source.ends_after(self._ends)
            else:
                self._ends = {(one.topic, one.partition): one.end for one in self._source.ranges()}
            return offset_of(self._ends)
        self._measure(start, now)
        self._called = now
        reached, earlier = places_of(start), planned_of(start)
        ran = earlier.ran if earlier else ()
        if self._before is not None and self._tells_pace:
            ran = remember(ran, self._before)
        is_limited = limit is None or hasattr(limit, "max_rows") or hasattr(limit, "maxRows")
        most = most_records(ran, self._bounds) if is_limited else None
        self._ends = self._source.ends_after(reached)
        found = self._clock()  # until then it may have waited for records
        if self._until is not None:
            self._ends = {place: min(end, self._until.get(place, 0)) for place, end in self._ends.items()}
        waiting = {place: max(end - reached.get(place, 0), 0) for place, end in self._ends.items()}
        lag = sum(waiting.values())
        if not lag:
            return start
        decision = decide_batch(lag, len(waiting), most, self._bounds)
        taken = part_of(waiting, decision.records)
        end = offset_of(
            reached | {place: reached.get(place, 0) + count for place, count in taken.items()},
            PlannedBatch(decision, self._before, ran, self._name),
        )
        self._running, self._before = _Running(end, decision.records, found, not self._has_run), None
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the topics ended when the last batch was made, for the query's progress."""
        return offset_of(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch: as many as were decided with it, with about equal backlogs.

        Raises
        ------
        SourceError
            If it ends before it begins. Before Spark 4.2, a new process is not told what was read before, so it cannot
            know better than the broker.
        """
        self._has_run = True
        begun, ranges = places_of(start), []
        for place, until in sorted(places_of(end).items()):
            since = begun.get(place, 0)
            if until < since:
                raise SourceError.gone(f"{place[0]}-{place[1]}", since, f"the broker tells the end {until}")
            ranges.append(OffsetRange(*place, since, until))
        planned = planned_of(end)
        if planned is not None:
            tasks = planned.decision.tasks
        else:
            tasks, _ = decide_tasks(sum(one.backlog for one in ranges), len(ranges), self._bounds)
        return [TaskRanges(one) for one in shared_out(ranges, tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a task."""
        return read_task(self._source, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept: Spark's checkpoint holds the offsets."""

    def _measure(self, start: dict[str, Any], now: float) -> None:
        """Take the time of the batch that has just ended, if this call is the first after it."""
        running, self._running = self._running, None
        if running is None or running.end != start:
            return  # nothing ran since the last call, or this process did not see how it began
        own = None if self._name is None or running.is_first else told(self._name, running.end)
        waited = own is None and self._bounds.interval is not None and self._is_on_time(now, self._bounds.interval)
        seconds = round(now - running.begun, 3) if own is None else own
        self._before = RanBatch(running.records, seconds, waited)
        self._tells_pace = waited or not running.is_first

    def _is_on_time(self, now: float, interval: float) -> bool:
        """Whether a call comes when a trigger fires, or a whole multiple of the interval after the call before."""
        around = min(_ON_TIME, _ON_TIME_PART * interval)
        if now % interval < around:
            return True
        intervals = 0.0 if self._called is None else (now - self._called) / interval
        return round(intervals) >= 1 and abs(intervals - round(intervals)) * interval < around
