"""How many tasks a step with Python functions is worth: their time is not in the bytes they read. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1 << 20
_LEAST_BYTES = 64 << 10
"""A task that reads less is not worth a Python worker, whatever is done with its rows."""
_LEAST_SECONDS = 0.5
"""The same in seconds of Python, where these are known: a worker takes about as long to start."""
_MOST_SECONDS = 10.0
"""A task that takes longer is divided even where all cores are busy: the last one would be waited for."""


@dataclass(frozen=True, slots=True)
class CpuNeed:
    """What the Python functions of a step ask for.

    Parameters
    ----------
    tasks
        The number of tasks, at least 1.
    reason
        Why that many, if nothing bounds them; half a sentence, without their number.
    """

    tasks: int
    reason: str


@dataclass(frozen=True, slots=True)
class PythonRun:
    """A step with Python functions that has run.

    Parameters
    ----------
    bytes_in, seconds, tasks
        What it read, how long it took, and by how many tasks.
    """

    bytes_in: int
    seconds: float
    tasks: int


def seconds_per_mib(runs: Iterable[PythonRun], cores: int) -> float | None:
    """Return the seconds of one core for a MiB, None if nothing was measured.

    Parameters
    ----------
    runs
        What has run of the same functions.
    cores
        How many tasks run at a time.
    """
    measured = [run for run in runs if run.bytes_in > 0]
    if not measured:
        return None
    seconds = sum(run.seconds * min(run.tasks, cores) for run in measured)
    return seconds * MIB / sum(run.bytes_in for run in measured)


def tasks_for_python(bytes_in: int, pace: float | None, cores: int) -> CpuNeed:
    """Return how many tasks the Python functions of a step are worth.

    Parameters
    ----------
    bytes_in
        What the step reads.
    pace
        The seconds of one core for a MiB, None if they are not known: then no core is left idle.
    cores
        How many tasks run at a time.
    """
    if pace is None:
        tasks = max(1, min(cores, math.ceil(bytes_in / _LEAST_BYTES)))
        return CpuNeed(tasks, f"it runs Python functions, and there are {show_count(cores, 'core')}")
    seconds = pace * bytes_in / MIB
    tasks = max(1, min(cores, int(seconds / _LEAST_SECONDS)), math.ceil(seconds / _MOST_SECONDS))
    return CpuNeed(
        tasks,
        f"its Python functions took {pace:.2g} s per MiB in this job, so they will take {seconds:.2g} s of a core",
    )
