"""Cost model of splitting the rows of the hot keys of a window by the order of the window.

Without a split, a task reads, sorts and computes the largest subpartition, at one unit of time per byte. With a split,
the rows of all hot subpartitions are sampled, written by ranges of the order, and summed up per range, before they are
read, sorted and computed.
"""

from __future__ import annotations

MIN_SPEEDUP = 1.5
"""The minimum estimated speedup of a split; the margin covers errors of the estimate."""

_COST = 2
"""The cost of computing split rows relative to computing them in a single task.

Measured: 1.8 times the CPU seconds, see docs/explanation/skewed-aggregates.md; the stages also wait for each other.
"""

MAX_CHUNK_FRACTION = 2 / 3
"""The maximum size of a chunk relative to the largest subpartition; a larger chunk makes the split useless."""


def speedup(largest: int, hot: int, total: int, cores: int, tasks: int) -> float:
    """Return the time of a window with a task per hot subpartition divided by its time with a split.

    Parameters
    ----------
    largest
        The bytes of the largest subpartition.
    hot
        The bytes of all subpartitions that are split.
    total
        The bytes of all subpartitions.
    cores
        The number of tasks that run at the same time.
    tasks
        The number of tasks that wrote the largest subpartition, which bounds the number of chunks.

    Examples
    --------
    >>> speedup(largest=800, hot=800, total=1000, cores=16, tasks=100)
    7.111111111111111
    >>> speedup(largest=800, hot=800, total=1000, cores=2, tasks=100)
    0.8888888888888888
    """
    unsplit = max(largest, total / cores)
    split = _COST * hot / min(cores, tasks) + (total - hot) / cores
    return unsplit / split
