"""Arithmetic of merging the partial results of a hot group in chunks.

The partial results that `n` tasks wrote before an exchange are merged in `p` chunks in parallel. Then a task merges
the `p` results. If all partial results hold the same values, that task merges `p` of them instead of `n`, and each
chunk merges `n / p`. If they hold disjoint values, a merged chunk is as large as its input, and nothing is saved.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.optimizer.skew import Range

MIN_SPEEDUP = 1.5
"""The minimum speedup that pays for the additional exchange of the merged chunks."""

_SAMPLE_RATE = 8
"""The ratio of all partial results to those that are merged to measure how many values they share."""

_BISECTION_STEPS = 30


def chunk_count(tasks: int, cores: int) -> int:
    """Return the best number of chunks for the partial results of some tasks, if all hold the same values."""
    return max(1, min(isqrt(tasks), cores))


def split_evenly(sizes: Sequence[int], chunks: int) -> list[Range]:
    """Return at most `chunks` ranges of tasks with about equal bytes; no range is empty.

    Examples
    --------
    >>> split_evenly([10, 10, 0, 10, 10], 2)
    [(0, 2), (2, 5)]
    """
    total, ends = sum(sizes), [0]
    for task, (size, so_far) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        if size and so_far * chunks >= total * len(ends):
            ends.append(task + 1)
    ends[-1] = len(sizes)
    return list(pairwise(ends))


def speedup(chunks: int, remaining: float) -> float:
    """Return the time to merge in a single task divided by the time to merge in chunks.

    Parameters
    ----------
    chunks
        The number of chunks; a task merges each.
    remaining
        The size of a merged chunk as a fraction of its input.

    Examples
    --------
    >>> speedup(4, 0.25)
    2.0
    """
    return 1 / (1 / chunks + remaining)


def max_speedup(tasks: int, cores: int) -> float:
    """Return the speedup if all partial results hold the same values."""
    chunks = chunk_count(tasks, cores)
    return speedup(chunks, chunks / tasks)


def sample_count(tasks: int) -> int:
    """Return how many partial results are merged to measure how many values they share."""
    return max(2, tasks // _SAMPLE_RATE)


def extrapolate_fraction(measured: float, sample: int, total: int) -> float:
    """Return the size of all partial results once merged as a fraction of their input, estimated from a sample.

    Assumes that each partial result holds an equally large random subset of the values of the group.

    Parameters
    ----------
    measured
        The size of the merged sample as a fraction of its input.
    sample, total
        The number of partial results in the sample and in total.

    Examples
    --------
    >>> extrapolate_fraction(0.5, 2, 10)  # both held the same values
    0.1
    >>> extrapolate_fraction(1.0, 2, 10)  # they held disjoint values
    1.0
    """
    if measured >= 1:
        return 1.0
    low, high = 0.0, 1.0  # bounds of the fraction of all values that a partial result holds
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _merged_fraction(middle, sample) > measured else (low, middle)
    return _merged_fraction(high, total)


def _merged_fraction(coverage: float, count: int) -> float:
    """Return the merged size of partial results, each with a fraction of all values, relative to their input."""
    return (1 - (1 - coverage) ** count) / (count * coverage)
