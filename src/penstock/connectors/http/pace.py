"""How fast a service may be asked, and how many tasks that is worth. Pure arithmetic."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.connectors.base import TasksWorth
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable

_ON_THE_WAY = 0.1
"""Seconds after its permit by which a request has reached the service, if its answer does not come sooner."""
_LEAST_SECONDS = 0.5
"""A task that sends for less is not worth a Python worker, which takes about as long to start."""


@dataclass(slots=True)
class Permit:
    """Leave to send one request.

    Parameters
    ----------
    at
        When it was given.
    until
        Until when it counts.
    """

    at: float
    until: float


class RateWindow:
    """Gives permits such that in any second no more requests reach a service than it may get.

    A request reaches the service between its permit and its answer. So a permit counts until a second after the answer:
    then no second that begins when or after it came can have this request in it. Where the answer takes long, the
    request is taken to have come a tenth of a second after its permit. Permits are spaced evenly, too.

    Parameters
    ----------
    rate
        Requests a second. A rate that is no whole number has a window in which a whole number fits.
    """

    def __init__(self, rate: float) -> None:
        self._most = math.ceil(rate)
        self._seconds = self._most / rate
        self._space = 1 / rate
        self._next = 0.0
        self._given: deque[Permit] = deque()

    def free_at(self, now: float) -> float:
        """Return when the next permit can be given, as far as is known now."""
        while self._given and self._given[0].until <= now:
            self._given.popleft()
        counted = sorted(permit.until for permit in self._given if permit.until > now)
        over = len(counted) - self._most
        return max(self._next, counted[over] if over >= 0 else now, now)

    def take(self, now: float) -> Permit:
        """Give a permit."""
        permit = Permit(now, now + _ON_THE_WAY + self._seconds)
        self._given.append(permit)
        self._next = now + self._space
        return permit

    def answered(self, permit: Permit, now: float) -> None:
        """Take notice that the service has answered, or never will."""
        permit.until = min(permit.until, now + self._seconds)


def tasks_worth(
    rate: float | None, seconds: float, measured: int, requests: int | None, cores: int, at_a_time: int = 1
) -> TasksWorth:
    """Return how many tasks the requests of a sink are worth.

    Parameters
    ----------
    rate
        The most requests a second, None for no limit.
    seconds, measured
        What a request takes, and of how many that was measured.
    requests
        How many there will be about, None if that is not known.
    cores
        How many tasks run at a time.
    at_a_time
        How many requests a task has under way at most.
    """
    took = f"a request takes {show_seconds(seconds)} ({measured} measured)"
    most = math.inf if requests is None else max(math.ceil(requests / at_a_time), 1)
    if rate is None:
        needed = math.inf if requests is None else max(1, int(requests * seconds / at_a_time / _LEAST_SECONDS))
        tasks = int(min(cores, needed, most))
        return TasksWorth(tasks, f"{took} and nothing limits how many are sent, so all cores that are worth it send")
    needed = max(1, math.ceil(round(rate * seconds / at_a_time, 6)))
    tasks = int(min(needed, most))
    if tasks < needed and requests is not None:
        some = f"; {cores} tasks can run at a time" if tasks > cores else ""
        return TasksWorth(tasks, f"there are only {show_count(requests, 'request')} to send{some}")
    limit = _short_of(rate, seconds, cores, at_a_time) if tasks > cores else ""
    each = f", {at_a_time} at a time by a task" if at_a_time > 1 else ""
    why = f"{took} and at most {rate:g} are sent in a second{each}, so more tasks would only wait{limit}"
    return TasksWorth(tasks, why)


def _short_of(rate: float, seconds: float, cores: int, at_a_time: int) -> str:
    """Say that the limit is not reached, and how it would be."""
    reached, wanted = cores * at_a_time / seconds, math.ceil(rate * seconds / cores)
    return (
        f"; {cores} of them can run at a time, and send about {reached:.3g} a second: with "
        f"requests_at_a_time={wanted} they would reach the limit"
    )


def show_seconds(seconds: float) -> str:
    """Return a time as people read it."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def middle(times: Iterable[float]) -> float | None:
    """Return the median, None of nothing."""
    ordered = sorted(times)
    return ordered[len(ordered) // 2] if ordered else None
