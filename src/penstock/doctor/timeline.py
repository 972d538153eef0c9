"""When the cores of an application were busy: the basis of every figure of lost time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from penstock.doctor.records import Application


@dataclass(frozen=True, slots=True)
class Timeline:
    """The idle fraction of all cores over time.

    The fraction `idle[i]` holds from `times[i]` to `times[i + 1]`, in seconds since the epoch. `totals[i]` is the
    integral up to `times[i]`. `cores` is the largest number of cores at a time.
    """

    times: np.ndarray
    idle: np.ndarray
    totals: np.ndarray
    busy: np.ndarray
    cores: int

    @property
    def first_task(self) -> float:
        """The launch of the first task, in seconds since the epoch."""
        return float(self.times[self.busy > 0][0])

    @classmethod
    def of(cls, application: Application) -> Timeline:
        """Compute the timeline from task attempts and executors; without executors, from the most tasks at a time."""
        tasks = [stage.tasks for stage in application.stages if len(stage.tasks)]
        launches = np.concatenate([part.column("launch") for part in tasks])
        finishes = np.concatenate([part.column("finish") for part in tasks])
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
        return cls(times, idle, totals, busy, int(max(capacity.max(initial=1), 1)))

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
        edges = np.concatenate([[-np.inf], self.times, [np.inf]])
        is_free = np.concatenate([[True], self.busy == 0])  # a flag per interval between edges
        intervals: list[tuple[float, float]] = []
        first = max(int(np.searchsorted(edges, start, "right")) - 1, 0)
        last = int(np.searchsorted(edges, end, "left"))
        for index in range(first, min(last, len(is_free))):
            low, high = max(start, float(edges[index])), min(end, float(edges[index + 1]))
            if is_free[index] and high > low:
                if intervals and intervals[-1][1] == low:
                    intervals[-1] = intervals[-1][0], high
                else:
                    intervals.append((low, high))
        return intervals


def _running(times: np.ndarray, launches: np.ndarray, finishes: np.ndarray) -> np.ndarray:
    """Return the number of running tasks from each time on."""
    begun = np.searchsorted(np.sort(launches), times, "right")
    ended = np.searchsorted(np.sort(finishes), times, "right")
    return (begun - ended).astype(float)
