"""When the cores of an application were busy: the basis of every figure of lost time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from penstock.doctor.records import Application


@dataclass(frozen=True, slots=True)
class Timeline:
    """The idle fraction of all cores over time.

    The fraction `idle[i]` holds from `times[i]` to `times[i + 1]`, in seconds since the epoch. `totals[i]` is the
    integral up to `times[i]`. `cores` is the largest number of cores at a time. `free` has the start and the end of
    each interval in which no task ran, in order.
    """

    times: np.ndarray
    idle: np.ndarray
    totals: np.ndarray
    busy: np.ndarray
    free: np.ndarray
    cores: int

    @property
    def first_task(self) -> float:
        """The launch of the first task, in seconds since the epoch."""
        return float(self.times[self.busy > 0][0])

    @classmethod
    def of(cls, application: Application) -> Timeline:
        """Compute the timeline from task attempts and executors; without executors, from the most tasks at a time.

        Tasks without an end run until the last event.
        """
        tasks = [stage.tasks for stage in application.stages if len(stage.tasks)]
        running = np.array([launch for stage in application.stages for launch in stage.running])
        launches = np.concatenate([running, *(part.column("launch") for part in tasks)])
        finishes = np.concatenate(
            [np.full(len(running), application.last_event), *(part.column("finish") for part in tasks)]
        )
        changes = sorted(application.cores)
        core_times, core_steps = np.array([time for time, _ in changes]), np.array([step for _, step in changes])
        times = np.unique(np.concatenate([launches, finishes, core_times]))
        busy = _running(times, launches, finishes)
        capacity = np.full(len(times), busy.max(initial=1.0))
        if changes:
            levels = np.concatenate([[0], np.cumsum(core_steps)])
            capacity = levels[np.searchsorted(core_times, times, "right")].astype(float)
        # Without executors, cores are idle: the application waits for them.
        idle = 1 - np.minimum(busy / np.maximum(capacity, np.maximum(busy, 1)), 1)
        totals = np.concatenate([[0.0], np.cumsum(idle[:-1] * np.diff(times))])
        is_free = np.concatenate([[False, True], busy == 0, [False]])  # a flag per interval between the edges
        edges = np.concatenate([[-np.inf], times, [np.inf]])
        starts, ends = is_free[1:-1] & ~is_free[:-2], is_free[1:-1] & ~is_free[2:]
        free = np.column_stack([edges[:-1][starts], edges[1:][ends]])
        return cls(times, idle, totals, busy, free, int(max(capacity.max(initial=1), 1)))

    def idle_seconds(self, start: float, end: float) -> float:
        """Return the integral of the idle fraction between two times.

        If half of the cores are idle for 10 seconds, the result is 5 seconds: with the work of the running tasks spread
        over all cores, the interval would be shorter by this time.
        """
        if end <= start:
            return 0.0
        return self._integral(end) - self._integral(start)

    def _integral(self, time: float) -> float:
        if time <= self.times[0]:
            return time - float(self.times[0])
        index = int(np.searchsorted(self.times, time, "right")) - 1
        return float(self.totals[index] + self.idle[index] * (time - self.times[index]))

    def task_seconds(self) -> float:
        """Return the seconds in which at least one task ran."""
        return float(np.diff(self.times)[self.busy[:-1] > 0].sum())

    def gaps(self, start: float, end: float) -> list[tuple[float, float]]:
        """Return the intervals between two times in which no task ran."""
        first = int(np.searchsorted(self.free[:, 1], start, "right"))
        last = int(np.searchsorted(self.free[:, 0], end, "left"))
        return [(max(float(low), start), min(float(high), end)) for low, high in self.free[first:last]]


def union_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, end = 0.0, float("-inf")
    for low, high in sorted(intervals):
        total += max(high - max(low, end), 0.0)
        end = max(end, high)
    return total


def _running(times: np.ndarray, launches: np.ndarray, finishes: np.ndarray) -> np.ndarray:
    """Return the number of running tasks from each time on."""
    begun = np.searchsorted(np.sort(launches), times, "right")
    ended = np.searchsorted(np.sort(finishes), times, "right")
    return (begun - ended).astype(float)
