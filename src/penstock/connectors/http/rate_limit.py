"""The rate limit of requests to a service, and the number of tasks that can reach this rate. Pure arithmetic."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from penstock.base.units import show_count
from penstock.connectors.core.base import SinkParallelism

_TRANSIT_SECONDS = 0.1
"""Seconds between the permit of a request and its assumed arrival at the service."""
_MIN_TASK_SECONDS = 0.5
"""The minimum sending time of a task: a Python worker takes about as long to start."""


@dataclass(slots=True)
class Permit:
    """Permission to send a request, granted at `at`; it counts against the limit until `until` (monotonic seconds)."""

    at: float
    until: float


class RateWindow:
    """Sliding window that grants permits so that a service never receives more requests per second than allowed.

    A request reaches the service between its permit and its response. So a permit counts against the limit until a
    second after the response. If the response takes long, the request is assumed to have arrived a tenth of a second
    after its permit. Permits are also evenly spaced. For a fractional rate, the window is longer than a second, so that
    it has a whole number of requests.
    """

    def __init__(self, rate: float) -> None:
        self._max_requests = math.ceil(rate)
        self._window_seconds = self._max_requests / rate
        self._interval = 1 / rate
        self._next = 0.0  # the earliest time of the next permit, for even spacing
        self._granted: deque[Permit] = deque()

    def free_at(self, now: float) -> float:
        """Return the earliest time of the next permit; `now` if a permit can be granted now."""
        while self._granted and self._granted[0].until <= now:
            self._granted.popleft()
        expiries = sorted(permit.until for permit in self._granted if permit.until > now)
        surplus = len(expiries) - self._max_requests  # at `expiries[surplus]`, `_max_requests` - 1 permits count
        return max(self._next, expiries[surplus] if surplus >= 0 else now, now)

    def take(self, now: float) -> Permit:
        """Grant a permit at `now`, which must not be before `free_at`."""
        permit = Permit(now, now + _TRANSIT_SECONDS + self._window_seconds)
        self._granted.append(permit)
        self._next = now + self._interval
        return permit

    def finish(self, permit: Permit, now: float) -> None:
        """Record that the request of a permit has ended, with or without a response."""
        permit.until = min(permit.until, now + self._window_seconds)


def recommend_tasks(
    rate: float | None, seconds: float, measured: int, requests: int | None, cores: int, requests_per_task: int = 1
) -> SinkParallelism:
    """Return the recommended number of tasks for `requests` requests (None if unknown).

    `seconds` is the median duration of `measured` requests; `cores` is the number of concurrent tasks. At most `rate`
    requests are sent per second (None for no limit), and each task sends at most `requests_per_task` at a time.
    """
    duration = f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
    took = f"a request takes {duration} ({measured} measured)"
    max_tasks = math.inf if requests is None else max(math.ceil(requests / requests_per_task), 1)
    if rate is None:
        busy_seconds = math.inf if requests is None else requests * seconds / requests_per_task
        needed = math.inf if requests is None else max(1, int(busy_seconds / _MIN_TASK_SECONDS))
        tasks = int(min(cores, needed, max_tasks))
        return SinkParallelism(tasks, f"{took} and no rate limit is set, so all cores with enough work send requests")
    needed = max(1, math.ceil(round(rate * seconds / requests_per_task, 6)))  # `round` removes floating-point errors
    tasks = int(min(needed, max_tasks))
    if tasks < needed and requests is not None:
        concurrent = f"; {cores} tasks can run at a time" if tasks > cores else ""
        return SinkParallelism(tasks, f"there are only {show_count(requests, 'request')} to send{concurrent}")
    limit = ""
    if tasks > cores:
        reached, per_core = cores * requests_per_task / seconds, math.ceil(rate * seconds / cores)
        limit = (
            f"; {cores} tasks can run at a time, and send about {reached:.3g} a second: with "
            f"requests_at_a_time={per_core} they would reach the limit"
        )
    each = f", {requests_per_task} at a time by a task" if requests_per_task > 1 else ""
    reason = f"{took} and at most {rate:g} are sent in a second{each}, so more tasks would only wait{limit}"
    return SinkParallelism(tasks, reason)
