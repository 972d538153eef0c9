"""Rate limit of requests to a service, and the number of tasks that it needs. Pure arithmetic."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from penstock.base.units import show_count
from penstock.connectors.core.base import SinkParallelism

_TRANSIT_SECONDS = 0.1
"""Seconds after its permit by which a request is assumed to have reached the service."""
_MIN_TASK_SECONDS = 0.5
"""The minimum sending time of a task: a Python worker takes about as long to start."""


@dataclass(slots=True)
class Permit:
    """Permission to send a request, granted at a time, which counts against the limit until another."""

    at: float
    until: float


class RateWindow:
    """Sliding window that grants permits so that a service never receives more requests per second than allowed.

    A request reaches the service between its permit and its response. So a permit counts until a second after the
    response. If the response takes long, the request is assumed to have arrived a tenth of a second after its permit.
    Permits are also evenly spaced. For a fractional rate, the window is longer than a second and has a whole number of
    requests.
    """

    def __init__(self, rate: float) -> None:
        self._most = math.ceil(rate)
        self._seconds = self._most / rate
        self._space = 1 / rate
        self._next = 0.0
        self._granted: deque[Permit] = deque()

    def free_at(self, now: float) -> float:
        """Return the earliest time of the next permit, as of `now`."""
        while self._granted and self._granted[0].until <= now:
            self._granted.popleft()
        counted = sorted(permit.until for permit in self._granted if permit.until > now)
        over = len(counted) - self._most
        return max(self._next, counted[over] if over >= 0 else now, now)

    def take(self, now: float) -> Permit:
        """Grant a permit."""
        permit = Permit(now, now + _TRANSIT_SECONDS + self._seconds)
        self._granted.append(permit)
        self._next = now + self._space
        return permit

    def finish(self, permit: Permit, now: float) -> None:
        """Record that a request has ended, with or without a response."""
        permit.until = min(permit.until, now + self._seconds)


def recommend_tasks(
    rate: float | None, seconds: float, measured: int, requests: int | None, cores: int, at_a_time: int = 1
) -> SinkParallelism:
    """Return the recommended number of tasks for a number of requests, None if unknown.

    `seconds` is the duration of a request, from `measured` requests; `cores` is how many tasks run at a time. At most
    `rate` requests are sent per second (None for no limit), and `at_a_time` by a task.
    """
    duration = f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
    took = f"a request takes {duration} ({measured} measured)"
    most = math.inf if requests is None else max(math.ceil(requests / at_a_time), 1)
    if rate is None:
        needed = math.inf if requests is None else max(1, int(requests * seconds / at_a_time / _MIN_TASK_SECONDS))
        tasks = int(min(cores, needed, most))
        return SinkParallelism(tasks, f"{took} and no rate limit is set, so all cores with enough work send requests")
    needed = max(1, math.ceil(round(rate * seconds / at_a_time, 6)))
    tasks = int(min(needed, most))
    if tasks < needed and requests is not None:
        some = f"; {cores} tasks can run at a time" if tasks > cores else ""
        return SinkParallelism(tasks, f"there are only {show_count(requests, 'request')} to send{some}")
    limit = ""
    if tasks > cores:
        reached, by_core = cores * at_a_time / seconds, math.ceil(rate * seconds / cores)
        limit = (
            f"; {cores} of them can run at a time, and send about {reached:.3g} a second: with "
            f"requests_at_a_time={by_core} they would reach the limit"
        )
    each = f", {at_a_time} at a time by a task" if at_a_time > 1 else ""
    reason = f"{took} and at most {rate:g} are sent in a second{each}, so more tasks would only wait{limit}"
    return SinkParallelism(tasks, reason)
