"""The number of tasks of a vertex, and the subpartitions that each task reads. Pure arithmetic.

The rules follow Flink's adaptive batch scheduler (`DefaultVertexParallelismAndInputInfosDecider`) for hash exchanges.
Other modules divide the other inputs: skewed subpartitions and rescale exchanges (`skew_cut`), and rows for files of a
target size (`file_sizes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.base.units import show_bytes, show_count
from penstock.config.options import MIN_PARALLELISM
from penstock.sizing.packing import Range, SizeList, pack_exactly, pack_within

MIB = 1 << 20
_MIN_TASK_BYTES = 64 << 10
"""The minimum bytes that a task with Python functions reads; for fewer, starting a Python worker costs too much."""
_MIN_TASK_SECONDS = 0.5
"""The minimum Python time of a task; starting a worker takes about as long."""
_MAX_TASK_SECONDS = 10.0
"""The maximum Python time of a task, even if this needs more tasks than cores: a job waits for its last task."""


@dataclass(frozen=True, slots=True)
class PythonTasks:
    """The number of tasks that Python functions of a step (vertex) need, before bounds apply, and why, as a clause."""

    tasks: int
    reason: str


@dataclass(frozen=True, slots=True)
class PythonRun:
    """A finished step with Python functions: the bytes it read, its duration, and its number of tasks."""

    bytes_in: int
    seconds: float
    tasks: int


def seconds_per_mib(runs: Iterable[PythonRun], cores: int) -> float | None:
    """Return the core seconds per MiB of input of finished steps, or None if nothing was measured."""
    measured = [run for run in runs if run.bytes_in > 0]
    if not measured:
        return None
    seconds = sum(run.seconds * min(run.tasks, cores) for run in measured)
    return seconds * MIB / sum(run.bytes_in for run in measured)


def tasks_for_python(bytes_in: int, pace: float | None, cores: int) -> PythonTasks:
    """Return the number of tasks that the Python functions of a step need for its input.

    `pace` is in core seconds per MiB, None if unknown: then each 64 KiB of input gets a task, up to all cores.
    """
    if pace is None:
        tasks = max(1, min(cores, math.ceil(bytes_in / _MIN_TASK_BYTES)))
        return PythonTasks(tasks, f"it runs Python functions, and there are {show_count(cores, 'core')}")
    seconds = pace * bytes_in / MIB
    tasks = max(1, min(cores, int(seconds / _MIN_TASK_SECONDS)), math.ceil(seconds / _MAX_TASK_SECONDS))
    return PythonTasks(
        tasks,
        f"its Python functions took {pace:.2g} s per MiB in this job, so they will take {seconds:.2g} s of a core",
    )


FALLBACK_MAX_PARALLELISM = 128
"""The maximum parallelism if no option sets it; larger with more than 32 cores, see `global_maximum`."""
PENSTOCK_DEFAULT = "Penstock's default"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of parallelism, and the bytes that a task should read; `maximum_from` is the origin of the maximum."""

    minimum: int
    maximum: int
    volume_per_task: int
    maximum_from: str = PENSTOCK_DEFAULT

    def __post_init__(self) -> None:
        if self.minimum < 1 or self.maximum < self.minimum:
            raise ValueError(f"no parallelism is between the bounds {self.minimum} and {self.maximum}")
        if self.volume_per_task < 1:
            raise ValueError(f"the volume per task must be at least 1 byte, not {self.volume_per_task}")


@dataclass(frozen=True, slots=True)
class VertexDecision:
    """The parallelism of a vertex, and its reason.

    `ranges` has, for each task, the range of subpartitions that it reads of every input.
    """

    reason: str
    ranges: list[Range]

    @property
    def parallelism(self) -> int:
        """The number of tasks."""
        return len(self.ranges)


def global_maximum(max_parallelism: int | None, parallelism_default: int | None, cores: int) -> int:
    """Return `max_parallelism`, else `parallelism_default`, else 128 or four times the cores, whichever is larger."""
    return max_parallelism or parallelism_default or max(FALLBACK_MAX_PARALLELISM, 4 * cores)


def vertex_bounds(bounds: Bounds, maximum: int | None = None) -> Bounds:
    """Return the bounds of a vertex; a maximum below the global maximum applies, and lowers a larger minimum."""
    if maximum is None or maximum >= bounds.maximum:
        return bounds
    return Bounds(min(bounds.minimum, maximum), maximum, bounds.volume_per_task, "the maximum of this step")


def decide_vertex(
    inputs: Sequence[np.ndarray], bounds: Bounds, parallelism: int | None = None, python: PythonTasks | None = None
) -> VertexDecision:
    """Decide the parallelism of a vertex whose inputs share the same ranges, and what each task reads.

    `inputs` are the bytes per subpartition of each input: at least one input, all with the same number of
    subpartitions. `parallelism` is the number of tasks if set. With fewer subpartitions than tasks, some tasks
    read nothing. `python` is the number of tasks that Python functions need, or None; it only raises the parallelism.
    """
    counts = {len(sizes) for sizes in inputs}
    if len(counts) != 1:
        raise ValueError(f"inputs of one vertex have different numbers of subpartitions: {sorted(counts)}")
    low, high = (bounds.minimum, bounds.maximum) if parallelism is None else (parallelism, parallelism)
    sizes = SizeList(np.sum(inputs, axis=0))
    volume, maximum_from = bounds.volume_per_task, bounds.maximum_from
    ranges, bound_reason = pack_within(sizes, volume, low, high, MIN_PARALLELISM.key, maximum_from)
    if not low <= len(ranges) <= high:
        ranges = pack_exactly(sizes, low)
    total = show_bytes(sizes.total)
    reason = f"{total} of input, {show_bytes(volume)} per task{bound_reason and f', {bound_reason}'}"
    if parallelism is None and python is not None and len(ranges) < min(python.tasks, high):
        more_ranges, _ = pack_within(sizes, volume, min(python.tasks, high), high)
        if len(more_ranges) > len(ranges):
            limit = f", at most {high} ({maximum_from})" if python.tasks > high else ""
            return VertexDecision(f"{total} of input: {python.reason}{limit}", more_ranges)
    return VertexDecision(reason if parallelism is None else f"parallelism is set to {parallelism}", ranges)


def subpartition_count(input_bytes: int, volume: int, upper: int) -> int:
    """Return how many subpartitions a vertex should write, from the estimated input bytes of its consumer.

    There are four per expected task of the consumer, so that tasks can read about equal sizes; at most `upper`.
    """
    return max(1, min(max(math.ceil(4 * max(input_bytes, 0) / volume), 4), upper))


_CHUNKS_PER_CONSUMER = 64
"""Chunks (subpartitions that the next free consumer takes) per consumer; small chunks shorten the wait at the end."""
_MAX_CHUNKS = 2000
"""Maximum chunks for up to 500 consumers: Spark stores only the average size if a task writes more than 2000 blocks."""


def chunk_count(consumers: int) -> int:
    """Return the number of chunks for a number of consumers, at least four per consumer.

    >>> chunk_count(4), chunk_count(1000)
    (256, 4000)
    """
    return max(min(_CHUNKS_PER_CONSUMER * consumers, _MAX_CHUNKS), 4 * consumers)
