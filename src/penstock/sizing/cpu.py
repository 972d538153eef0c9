"""Number of tasks of a step with Python functions, whose cost depends little on bytes. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1 << 20
_MIN_TASK_BYTES = 64 << 10
"""A task that reads less is not worth a Python worker."""
_MIN_TASK_SECONDS = 0.5
"""A task with less Python time is not worth a worker, as starting a worker takes about as long."""
_MAX_TASK_SECONDS = 10.0
"""Longer tasks are divided even if all cores are busy, so that the job does not wait for a last long task."""


@dataclass(frozen=True, slots=True)
class CpuNeed:
    """The number of tasks that the Python functions of a step need, at least 1.

    The reason is a clause without the number, before bounds apply.
    """

    tasks: int
    reason: str


@dataclass(frozen=True, slots=True)
class PythonRun:
    """A finished step with Python functions: the bytes it read, its duration, and its number of tasks."""

    bytes_in: int
    seconds: float
    tasks: int


def seconds_per_mib(runs: Iterable[PythonRun], cores: int) -> float | None:
    """Return the core seconds per MiB of finished steps, None if nothing was measured."""
    measured = [run for run in runs if run.bytes_in > 0]
    if not measured:
        return None
    seconds = sum(run.seconds * min(run.tasks, cores) for run in measured)
    return seconds * MIB / sum(run.bytes_in for run in measured)


def tasks_for_python(bytes_in: int, pace: float | None, cores: int) -> CpuNeed:
    """Return the number of tasks that the Python functions of a step need for its input.

    `pace` is in core seconds per MiB, None if unknown: then all cores are used.
    """
    if pace is None:
        tasks = max(1, min(cores, math.ceil(bytes_in / _MIN_TASK_BYTES)))
        return CpuNeed(tasks, f"it runs Python functions, and there are {show_count(cores, 'core')}")
    seconds = pace * bytes_in / MIB
    tasks = max(1, min(cores, int(seconds / _MIN_TASK_SECONDS)), math.ceil(seconds / _MAX_TASK_SECONDS))
    return CpuNeed(
        tasks,
        f"its Python functions took {pace:.2g} s per MiB in this job, so they will take {seconds:.2g} s of a core",
    )
