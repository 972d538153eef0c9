"""Recommended trigger, parallelism and state partitions of a stream, from its past batches; does not use Spark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock.base.units import show_count, show_exact_seconds
from penstock.connectors.kafka.streams.pace import MeasuredBatch, Pace, fit_pace
from penstock.state.recommendation import recommend

if TYPE_CHECKING:
    from penstock.streams.progress import BatchProgress

MAX_LOAD = 0.7
"""Largest fraction of its time that a query should be busy; the rest is for catching up after a pause or a burst."""
MAX_FILL = 0.8
"""Largest fraction of a trigger's interval that a batch may take; must be above `MAX_LOAD`, see `_advise_trigger`."""
_TRIGGER_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)  # to recommend, in seconds
_MAX_BACK_TO_BACK = 1.1
"""Batches wait for no trigger if the median time between their starts is below this multiple of their duration."""


@dataclass(frozen=True, slots=True)
class SettingAdvice:
    """The recommendation for a setting."""

    setting: str
    now: str | None  # the current value, as displayed; None if it was not recorded
    needed: str  # the recommended value, as displayed
    reason: str  # a sentence without its full stop


@dataclass(frozen=True, slots=True)
class Advice:
    """Figures of a query's batches, and recommendations for its settings.

    `query` is the query's name, or its id without a name. `batches` is the number of batches with rows, and `seconds`
    the time from the start of the first to the start of the last. `arrival` is the number of records that arrive per
    second. `pace` is the fixed time of each batch, and the rate at which it then processes records. `load` is `arrival`
    divided by this rate: the fraction of time that records need. `lag` counts unread records; None if not reported.
    """

    query: str
    batches: int
    seconds: float
    arrival: float
    pace: Pace
    load: float
    lag: int | None
    settings: tuple[SettingAdvice, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


def advise(batches: Sequence[BatchProgress], cores: int | None = None) -> Advice | None:
    """Return the recommendations for a query; None if fewer than two batches read rows, or none took any time.

    `cores` is the number of cores of the cluster; None for the recorded number.
    """
    nonempty_batches = [batch for batch in batches if batch.rows]
    pace = fit_pace([MeasuredBatch(batch.rows, batch.seconds) for batch in nonempty_batches])
    if len(nonempty_batches) < 2 or pace is None:
        return None
    seconds = nonempty_batches[-1].started - nonempty_batches[0].started
    arrival = _count_arrivals(nonempty_batches) / max(seconds, 0.001)
    load = arrival / pace.rate
    parallelism, factor = _advise_tasks(nonempty_batches, load, cores)
    last = nonempty_batches[-1]
    trigger = _advise_trigger(nonempty_batches, Pace(pace.fixed, pace.rate * factor), arrival)
    settings = (parallelism, trigger, *_advise_state_partitions(last, cores))
    return Advice(last.query, len(nonempty_batches), seconds, arrival, pace, load, last.lag, settings)


def _count_arrivals(batches: Sequence[BatchProgress]) -> int:
    """Return the number of records that arrived between the starts of the first and the last batch.

    Without the end offsets of topics, return the number of records read, which is smaller while a backlog grows.
    """
    first, last = batches[0].end_offset_sum, batches[-1].end_offset_sum
    return last - first if first is not None and last is not None else sum(batch.rows for batch in batches[1:])


def _advise_tasks(batches: Sequence[BatchProgress], load: float, cores: int | None) -> tuple[SettingAdvice, float]:
    """Return the advice for the number of concurrent tasks, and the factor by which the advice speeds up the query."""
    cores = cores or batches[-1].cores
    tasks = [batch.decision.tasks for batch in batches if batch.decision is not None]
    now = int(median(tasks)) if tasks else None  # as Penstock's source chose
    tasks_now = min(limit for limit in (now, cores) if limit is not None) if now or cores else None
    summary = f"arriving records keep the query busy for {load:.0%} of its time; at most {MAX_LOAD:.0%} is recommended"
    if tasks_now is None:
        needed = f"{load / MAX_LOAD:.2g} times as many" if load > MAX_LOAD else "as many as now"
        reason = f"{summary}; pass --cores for the current number"
        return SettingAdvice("parallelism", None, needed, reason), max(load / MAX_LOAD, 1.0)
    if load <= MAX_LOAD:
        sufficient = max(1, math.ceil(tasks_now * load / MAX_LOAD))
        reason = f"{summary}; {sufficient} would suffice" if sufficient < tasks_now else summary
        return SettingAdvice("parallelism", str(tasks_now), str(tasks_now), reason), 1.0
    tasks_needed = math.ceil(tasks_now * load / MAX_LOAD)
    cores_note = f"; there are {show_count(cores, 'core')} now" if cores is not None and tasks_needed > cores else ""
    reason = f"{summary}; this assumes that each task stays as fast{cores_note}"
    return SettingAdvice("parallelism", str(tasks_now), str(tasks_needed), reason), tasks_needed / tasks_now


def _advise_trigger(batches: Sequence[BatchProgress], pace: Pace, arrival: float) -> SettingAdvice:
    """Recommend the shortest listed interval of which a batch takes at most `MAX_FILL`; without any, the longest."""
    gap = median(later.started - earlier.started for earlier, later in pairwise(batches))
    batch_seconds = median(batch.seconds for batch in batches)
    now = "none: one batch after the other" if gap < _MAX_BACK_TO_BACK * batch_seconds else _rounded(gap)
    load = arrival / pace.rate
    # The records of an interval take the fraction `load` of it, which leaves `MAX_FILL - load` for the fixed part of a
    # batch. At a load of `MAX_FILL`, no interval would be long enough. But `pace` includes the speedup by the
    # recommended tasks, so the load is at most `MAX_LOAD`.
    shortest = pace.fixed / (MAX_FILL - load)
    interval = next((seconds for seconds in _TRIGGER_INTERVALS if seconds >= shortest), _TRIGGER_INTERVALS[-1])
    records = arrival * interval
    duration = pace.fixed + records / pace.rate
    share = f"{duration:.1f} s ({duration / interval:.0%} of it)"
    reason = f"{show_count(round(records), 'record')} arrive in this interval and take {share} at {pace}"
    return SettingAdvice("trigger", now, show_exact_seconds(interval), reason)


def _rounded(seconds: float) -> str:
    return show_exact_seconds(round(seconds)) if seconds >= 1 else f"{seconds:.1f} s"


def _advise_state_partitions(last: BatchProgress, cores: int | None) -> tuple[SettingAdvice, ...]:
    cores = cores or last.cores
    if not last.state or cores is None:
        return ()  # no state, or an unknown number of cores
    largest = max(last.state, key=lambda operator: operator.size)
    advice = recommend(largest.partitions, largest.size, cores)
    return (SettingAdvice("state partitions", str(largest.partitions), str(advice.max_parallelism), advice.reason),)
