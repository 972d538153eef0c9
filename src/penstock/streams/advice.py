"""What trigger, parallelism and state partitions a stream needs, from what its batches did. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock.connectors.pace import Pace, RanBatch, fitted
from penstock.state.recommendation import recommend
from penstock.units import show_count, show_exact_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.streams.progress import BatchProgress

BUSY = 0.7
"""The part of its time that a query may work: with the rest it catches up after a pause or a burst."""
FULL = 0.8
"""The part of a trigger's interval that a batch may fill; more than `BUSY`, so that an interval can be found."""
_NICE = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)
"""Seconds that people set as intervals."""
_BACK_TO_BACK = 1.1
"""If batches start less than so many times their length apart, nobody waited for a trigger."""


@dataclass(frozen=True, slots=True)
class Advised:
    """One setting.

    Parameters
    ----------
    setting
        What it is.
    now
        Its value now, as people write it; None if nobody recorded it.
    needed
        The value that the figures ask for.
    reason
        Why, one sentence without its full stop.
    """

    setting: str
    now: str | None
    needed: str
    reason: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What a query did, and what it needs.

    Parameters
    ----------
    query
        Its name, or its id.
    batches, seconds
        How many batches were looked at, and from the start of the first to the start of the last.
    arrival
        The records that arrive per second.
    pace
        What its batches cost.
    load
        Which part of its time it must work: the arrival by the pace.
    lag
        The records that wait, None if its sources do not tell.
    settings
        What it needs.
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
        """Return it for programs."""
        return asdict(self)


def advise(batches: Sequence[BatchProgress], cores: int | None = None) -> Advice | None:
    """Return what a query needs; None if fewer than two batches read rows.

    Parameters
    ----------
    batches
        What it did.
    cores
        The cores of the cluster, None for those that were recorded.
    """
    full = [one for one in batches if one.rows]
    pace = fitted([RanBatch(one.rows, one.seconds) for one in full])
    if len(full) < 2 or pace is None:
        return None
    seconds = full[-1].began - full[0].began
    arrival = _arrived(full) / max(seconds, 0.001)
    load = arrival / pace.rate
    parallelism, factor = _parallelism(full, load, cores)
    settings = [parallelism, _trigger(full, Pace(pace.fixed, pace.rate * factor), arrival)]
    return Advice(
        full[-1].query,
        len(full),
        seconds,
        arrival,
        pace,
        load,
        full[-1].lag,
        tuple(settings) + _state_partitions(full[-1], cores),
    )


def _arrived(full: Sequence[BatchProgress]) -> int:
    """Return how many records came between the starts of the first and the last batch.

    What was read in that time, if no source tells where its topics end: that is less while a backlog grows.
    """
    first, last = full[0].ends, full[-1].ends
    return last - first if first is not None and last is not None else sum(one.rows for one in full[1:])


def _parallelism(full: Sequence[BatchProgress], load: float, cores: int | None) -> tuple[Advised, float]:
    """Return how many tasks should run at a time, and how many times as fast the query then is."""
    known = cores or full[-1].cores
    tasks = [one.decision.tasks for one in full if one.decision is not None]
    now = int(median(tasks)) if tasks else None
    at_a_time = min(one for one in (now, known) if one is not None) if now or known else None
    told = f"the records that arrive keep the query busy for {load:.0%} of its time, and {BUSY:.0%} is enough"
    if at_a_time is None:
        needed = f"{load / BUSY:.2g} times as many" if load > BUSY else "as many as now"
        return Advised("parallelism", None, needed, f"{told}; --cores says how many run now"), max(load / BUSY, 1.0)
    if load <= BUSY:
        least = max(1, math.ceil(at_a_time * load / BUSY))
        fewer = f"; {least} would do" if least < at_a_time else ""
        reason = f"{told.partition(', and')[0]}, and up to {BUSY:.0%} is fine{fewer}"
        return Advised("parallelism", str(at_a_time), str(at_a_time), reason), 1.0
    more = math.ceil(at_a_time * load / BUSY)
    beyond = f"; there are {show_count(known, 'core')} now" if known is not None and more > known else ""
    reason = f"{told}, if each task stays as fast{beyond}"
    return Advised("parallelism", str(at_a_time), str(more), reason), more / at_a_time


def _trigger(full: Sequence[BatchProgress], pace: Pace, arrival: float) -> Advised:
    """Return the shortest interval that a batch of its records fits in."""
    apart = median(later.began - one.began for one, later in pairwise(full))
    length = median(one.seconds for one in full)
    now = "none: one batch after the other" if apart < _BACK_TO_BACK * length else _rounded(apart)
    load = arrival / pace.rate
    shortest = pace.fixed / (FULL - load)
    interval = next((nice for nice in _NICE if nice >= shortest), _NICE[-1])
    records = arrival * interval
    takes = pace.fixed + records / pace.rate
    reason = (
        f"{show_count(round(records), 'record')} arrive in it, and take {takes:.1f} s "
        f"({takes / interval:.0%} of it) at {pace}"
    )
    return Advised("trigger", now, show_exact_seconds(interval), reason)


def _rounded(seconds: float) -> str:
    return show_exact_seconds(round(seconds)) if seconds >= 1 else f"{seconds:.1f} s"


def _state_partitions(last: BatchProgress, cores: int | None) -> tuple[Advised, ...]:
    known = cores or last.cores
    if not last.state or known is None:
        return ()
    largest = max(last.state, key=lambda one: one.size)
    found = recommend(largest.partitions, largest.size, known)
    return (Advised("state partitions", str(largest.partitions), str(found.max_parallelism), found.reason),)
