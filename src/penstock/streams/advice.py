"""Recommended trigger, parallelism and state partitions of a stream, from its past batches. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock.base.units import show_count, show_exact_seconds
from penstock.connectors.kafka.streams.pace import MeasuredBatch, Pace, fitted
from penstock.state.recommendation import recommend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.streams.progress import BatchProgress

BUSY = 0.7
"""Largest fraction of its time that a query should work; in the rest it catches up after a pause or a burst."""
FULL = 0.8
"""Largest fraction of a trigger's interval that a batch may fill; more than `BUSY`, so that an interval exists."""
_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)
"""Recommended intervals of triggers, in seconds."""
_BACK_TO_BACK = 1.1
"""If the starts of batches are less than this many batch durations apart, no batch waited for a trigger."""


@dataclass(frozen=True, slots=True)
class Advised:
    """The recommendation for a setting."""

    setting: str
    now: str | None
    """The current value, as displayed; None if it was not recorded."""
    needed: str
    reason: str
    """A sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Figures of a query's batches, and recommendations for its settings.

    `query` is the name of the query, or its id if it has no name. `batches` is the number of batches with rows, and
    `seconds` the time from the start of the first to the start of the last. `arrival` are the records that arrive per
    second. `load` is the fraction of its time that the query must work: the arrival divided by the pace. `lag` are the
    records that are waiting; None if the sources do not report it.
    """

    query: str
    batches: int
    seconds: float
    arrival: float
    pace: Pace
    load: float
    lag: int | None
    settings: tuple[Advised, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


def advise(batches: Sequence[BatchProgress], cores: int | None = None) -> Advice | None:
    """Return the recommendations for a query; None if fewer than two batches read rows.

    `cores` are the cores of the cluster; None for the recorded number.
    """
    with_rows = [batch for batch in batches if batch.rows]
    pace = fitted([MeasuredBatch(batch.rows, batch.seconds) for batch in with_rows])
    if len(with_rows) < 2 or pace is None:
        return None
    seconds = with_rows[-1].began - with_rows[0].began
    arrival = _arrived_records(with_rows) / max(seconds, 0.001)
    load = arrival / pace.rate
    parallelism, factor = _parallelism(with_rows, load, cores)
    trigger, last = _trigger(with_rows, Pace(pace.fixed, pace.rate * factor), arrival), with_rows[-1]
    settings = (parallelism, trigger, *_state_partitions(last, cores))
    return Advice(last.query, len(with_rows), seconds, arrival, pace, load, last.lag, settings)


def _arrived_records(batches: Sequence[BatchProgress]) -> int:
    """Return the records that arrived between the starts of the first and the last batch.

    Without the ends of the topics, return the records that were read, which are fewer while a backlog grows.
    """
    first, last = batches[0].ends, batches[-1].ends
    return last - first if first is not None and last is not None else sum(batch.rows for batch in batches[1:])


def _parallelism(batches: Sequence[BatchProgress], load: float, cores: int | None) -> tuple[Advised, float]:
    """Return the recommended number of concurrent tasks, and the resulting speedup of the query."""
    cores = cores or batches[-1].cores
    tasks = [batch.decision.tasks for batch in batches if batch.decision is not None]
    now = int(median(tasks)) if tasks else None
    concurrent = min(limit for limit in (now, cores) if limit is not None) if now or cores else None
    utilization = f"the records that arrive keep the query busy for {load:.0%} of its time"
    overload = f"{utilization}, and {BUSY:.0%} is enough"
    if concurrent is None:
        needed = f"{load / BUSY:.2g} times as many" if load > BUSY else "as many as now"
        return Advised("parallelism", None, needed, f"{overload}; --cores says how many run now"), max(load / BUSY, 1.0)
    if load <= BUSY:
        least = max(1, math.ceil(concurrent * load / BUSY))
        fewer = f"; {least} would do" if least < concurrent else ""
        reason = f"{utilization}, and up to {BUSY:.0%} is fine{fewer}"
        return Advised("parallelism", str(concurrent), str(concurrent), reason), 1.0
    more = math.ceil(concurrent * load / BUSY)
    beyond = f"; there are {show_count(cores, 'core')} now" if cores is not None and more > cores else ""
    reason = f"{overload}, if each task stays as fast{beyond}"
    return Advised("parallelism", str(concurrent), str(more), reason), more / concurrent


def _trigger(batches: Sequence[BatchProgress], pace: Pace, arrival: float) -> Advised:
    """Return the shortest interval in which a batch can process the records of an interval."""
    apart = median(later.began - earlier.began for earlier, later in pairwise(batches))
    length = median(batch.seconds for batch in batches)
    now = "none: one batch after the other" if apart < _BACK_TO_BACK * length else _rounded(apart)
    load = arrival / pace.rate
    shortest = pace.fixed / (FULL - load)
    interval = next((seconds for seconds in _INTERVALS if seconds >= shortest), _INTERVALS[-1])
    records = arrival * interval
    duration = pace.fixed + records / pace.rate
    reason = (
        f"{show_count(round(records), 'record')} arrive in it, and take {duration:.1f} s "
        f"({duration / interval:.0%} of it) at {pace}"
    )
    return Advised("trigger", now, show_exact_seconds(interval), reason)


def _rounded(seconds: float) -> str:
    return show_exact_seconds(round(seconds)) if seconds >= 1 else f"{seconds:.1f} s"


def _state_partitions(last: BatchProgress, cores: int | None) -> tuple[Advised, ...]:
    cores = cores or last.cores
    if not last.state or cores is None:
        return ()
    largest = max(last.state, key=lambda operator: operator.size)
    advice = recommend(largest.partitions, largest.size, cores)
    return (Advised("state partitions", str(largest.partitions), str(advice.max_parallelism), advice.reason),)
