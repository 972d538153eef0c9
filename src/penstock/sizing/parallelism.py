"""The number of tasks of a vertex, and the subpartitions that each task reads. Pure arithmetic.

The rules follow Flink's adaptive batch scheduler (`DefaultVertexParallelismAndInputInfosDecider`) for hash exchanges.
Other modules divide the other inputs: skewed subpartitions (`skew_cut`), rescale exchanges (`rescaling`) and files of a
target size (`file_sizes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.units import show_bytes, show_count
from penstock.config.options import MIN_PARALLELISM
from penstock.sizing.packing import Range, SizeRow, pack_exactly, pack_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIB = 1 << 20
_MIN_TASK_BYTES = 64 << 10
"""A task that reads less is not worth a Python worker."""
_MIN_TASK_SECONDS = 0.5
"""A task with less Python time is not worth a worker, as starting a worker takes about as long."""
_MAX_TASK_SECONDS = 10.0
"""Longer tasks are divided even if all cores are busy, so that the job does not wait for a last long task."""


@dataclass(frozen=True, slots=True)
class CpuNeed:
    """The number of tasks that Python functions of a step need, and the reason: a clause, before bounds apply."""

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


FALLBACK_MAX_PARALLELISM = 128
PENSTOCKS_DEFAULT = "Penstock's default"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The global bounds of parallelism and the bytes per task; `maximum_from` says what sets the maximum."""

    minimum: int
    maximum: int
    volume_per_task: int
    maximum_from: str = PENSTOCKS_DEFAULT

    def __post_init__(self) -> None:
        if self.minimum < 1 or self.maximum < self.minimum:
            raise ValueError(f"no parallelism is between the bounds {self.minimum} and {self.maximum}")
        if self.volume_per_task < 1:
            raise ValueError(f"the volume per task must be at least 1 byte, not {self.volume_per_task}")


@dataclass(frozen=True, slots=True)
class VertexDecision:
    """The parallelism of a vertex.

    `ranges` has the range of subpartitions that each task reads of every input.
    """

    reason: str
    ranges: list[Range]

    @property
    def parallelism(self) -> int:
        """The number of tasks."""
        return len(self.ranges)


def global_maximum(max_parallelism: int | None, parallelism_default: int | None, cores: int) -> int:
    """Return the bound of all decisions: the option, else the default parallelism, else 128 or four times the cores."""
    return max_parallelism or parallelism_default or max(FALLBACK_MAX_PARALLELISM, 4 * cores)


def vertex_bounds(bounds: Bounds, maximum: int | None = None) -> Bounds:
    """Return the bounds of a vertex; its own maximum wins over a larger global minimum."""
    if maximum is None or maximum >= bounds.maximum:
        return bounds
    return Bounds(min(bounds.minimum, maximum), maximum, bounds.volume_per_task, "the most tasks of this step")


def decide_vertex(
    inputs: Sequence[np.ndarray], bounds: Bounds, parallelism: int | None = None, python: CpuNeed | None = None
) -> VertexDecision:
    """Decide the parallelism of a vertex whose inputs share the same ranges, and what each task reads.

    `inputs` are the bytes per subpartition of each input. At least one input; all have the same number of
    subpartitions. `parallelism` is the number of tasks if it is set; with fewer subpartitions, some tasks read nothing.
    `python` is the tasks that its Python functions need, None without such functions. They can only raise the number of
    tasks.
    """
    widths = {len(sizes) for sizes in inputs}
    if len(widths) != 1:
        raise ValueError(f"inputs of one vertex have different numbers of subpartitions: {sorted(widths)}")
    low, high = (bounds.minimum, bounds.maximum) if parallelism is None else (parallelism, parallelism)
    row = SizeRow(np.sum(inputs, axis=0))
    ranges, limited = pack_within(row, bounds.volume_per_task, low, high, MIN_PARALLELISM.key, bounds.maximum_from)
    if not low <= len(ranges) <= high:
        ranges = pack_exactly(row, low)
    reason = (
        f"{show_bytes(row.total)} of input, {show_bytes(bounds.volume_per_task)} per task{limited and f', {limited}'}"
    )
    if parallelism is None and python is not None and len(ranges) < min(python.tasks, high):
        more, _ = pack_within(row, bounds.volume_per_task, min(python.tasks, high), high)
        if len(more) > len(ranges):
            limit = f", at most {high} ({bounds.maximum_from})" if python.tasks > high else ""
            return VertexDecision(f"{show_bytes(row.total)} of input: {python.reason}{limit}", more)
    return VertexDecision(reason if parallelism is None else f"parallelism is set to {parallelism}", ranges)


def subpartition_count(input_bytes: int, volume: int, upper: int) -> int:
    """Return how many subpartitions a vertex should write, from the estimated input bytes of its consumer.

    There are four per expected task, so that they can be packed evenly.
    """
    return max(1, min(max(math.ceil(4 * max(input_bytes, 0) / volume), 4), upper))


_PER_CONSUMER = 64
"""Chunks per consumer. At the end, all consumers wait for the last chunk, so smaller chunks shorten the wait for a slow
consumer."""
_TOTAL = 2000
"""Upper limit of all chunks. A writing task has a block per chunk, and beyond this Spark tracks only average sizes."""


def chunk_count(consumers: int) -> int:
    """Return the number of chunks for a number of consumers, at least four per consumer.

    >>> chunk_count(4), chunk_count(1000)
    (256, 4000)
    """
    return max(min(_PER_CONSUMER * consumers, _TOTAL), 4 * consumers)
