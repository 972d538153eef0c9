"""Cutting an exchange so that the files written behind it have a wanted size. Pure arithmetic.

A subpartition that is too large for a file (a partition that holds most of the rows) is read in several pieces, along
the tasks that wrote it; small ones share a task.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.scheduler.parallelism import Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.scheduler.packing import Range

_TOO_LARGE = 1.25
"""A file may be so many times as large as wanted."""
_PARTS = (1, 0.95, 0.9, 0.85, 0.8, 1.05, 1.1, 1.15, 1.2, 1.25, 1.33)
"""How many times as many files as there would be of the wanted size are tried: neighbours may part better so."""


def cut_for_files(sizes: Sequence[float], by_mapper: Callable[[int], Sequence[float]], target: float) -> list[Slice]:
    """Return what each task reads, so that it writes about `target` bytes.

    Parameters
    ----------
    sizes
        The bytes on disk that each subpartition will make.
    by_mapper
        Returns those of one subpartition by the tasks that wrote it.
    target
        The wanted bytes of a file.

    Returns
    -------
    list[Slice]
        At least one, covering every subpartition once.
    """
    slices: list[Slice] = []
    large = [index for index, size in enumerate(sizes) if size > _TOO_LARGE * target]
    start = 0
    for index in [*large, len(sizes)]:
        between = sizes[start:index]
        if index > start:
            runs = runs_near(between, target)
            slices += [Slice((start + low, start + high)) for low, high in runs]
        if index < len(sizes):
            pieces = by_mapper(index)
            runs = runs_near(pieces, target)
            slices += [Slice((index, index + 1), run) for run in runs]
        start = index + 1
    return slices or [Slice((0, len(sizes)))]


def runs_near(weights: Sequence[float], target: float) -> list[Range]:
    """Return runs of neighbours, none of whose weights is further from a target than need be."""
    about = sum(weights) / target
    counts = {max(1, min(len(weights), round(about * part))) for part in _PARTS}

    def worst(runs: list[Range]) -> float:
        return max(abs(sum(weights[low:high]) / target - 1) for low, high in runs)

    return min((even_runs(weights, count) for count in sorted(counts)), key=worst)


def even_runs(weights: Sequence[float], count: int) -> list[Range]:
    """Return at most `count` runs of neighbours, none of them empty, whose weights are as even as neighbours allow."""
    count = min(count, len(weights))
    sums = list(accumulate(weights))
    edges = [0]
    for mark in range(1, count):
        wanted = sums[-1] * mark / count
        place = bisect_left(sums, wanted)
        before = sums[place - 1] if place else 0.0
        edge = place if wanted - before < sums[place] - wanted else place + 1
        edges.append(min(max(edge, edges[-1] + 1), len(weights) - (count - mark)))
    return [(low, high) for low, high in zip(edges, [*edges[1:], len(weights)], strict=True)]
