"""What the tasks of a vertex read of inputs with skewed subpartitions. Pure arithmetic.

A task reads a range of whole subpartitions, or a part of one of them: from some upstream tasks only. Where there may be
only so many tasks, parts are put together again, and what is skewed least is not split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heappush, heapreplace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from penstock.sizing.packing import Range, SizeRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sizing.parallelism import Bounds


@dataclass(frozen=True, slots=True)
class Slice:
    """What a task reads of an input: a range of subpartitions, of all upstream tasks or of some.

    Parameters
    ----------
    subpartitions
        The range; of several upstream tasks, one subpartition or all.
    mappers
        The range of upstream tasks, None for all.
    """

    subpartitions: Range
    mappers: Range | None = None


_NOTHING = Slice((0, 0))

Cuts = list[tuple[Slice, ...]]
"""For every task what it reads of each input."""


def cut_skewed(
    sizes: Sequence[np.ndarray],
    slices: Sequence[Mapping[int, Sequence[Range]]],
    bounds: Bounds,
    parallelism: int | None = None,
) -> Cuts:
    """Return for every task what it reads of each of several inputs that must meet by subpartition.

    Subpartitions between skewed ones are packed by the volume per task. Of a skewed one every slice of each input meets
    every slice of the others, each combination in a task of its own, if there may be so many tasks.

    Parameters
    ----------
    sizes
        Of every input the bytes per subpartition, shape (subpartitions,).
    slices
        Of every input the ranges of upstream tasks of its skewed subpartitions.
    bounds
        The vertex's bounds.
    parallelism
        The number of tasks if it is given; there are exactly so many then, some of them with nothing to read if there
        is not enough to divide.
    """
    low, high = (bounds.minimum, bounds.maximum) if parallelism is None else (parallelism, parallelism)
    tasks = _combined(sizes, slices, bounds.volume_per_task)
    if low <= len(tasks) <= high:
        return tasks
    most, least_limit = (low, 1) if parallelism is not None or len(tasks) < low else (high, bounds.volume_per_task)
    row = SizeRow(np.sum(sizes, axis=0))
    apart = _apart(row, _of_one_input(slices), most)
    ways = [_stretches(row, dict(apart[: len(apart) >> halved])) for halved in range(len(apart).bit_length() + 1)]
    found = [_divided(_packed(stretches, most, least_limit), most) for stretches in ways]
    runs = min(found, key=lambda runs: max(run.bytes for run in runs))
    return [run.slices(len(sizes)) for run in runs] + [(_NOTHING,) * len(sizes)] * (low - len(runs))


def _combined(sizes: Sequence[np.ndarray], slices: Sequence[Mapping[int, Sequence[Range]]], volume: int) -> Cuts:
    """Return the tasks where nothing bounds their number."""
    total = np.sum(sizes, axis=0)
    tasks: Cuts = []
    start = 0
    for index in [*sorted(set().union(*slices)), len(total)]:
        if index > start:
            packed = SizeRow(total[start:index]).pack(volume)
            tasks += [tuple(Slice((start + low, start + high)) for _ in sizes) for low, high in packed]
        if index < len(total):
            parts = [[Slice((index, index + 1), part) for part in own.get(index, [None])] for own in slices]
            tasks += product(*parts)
        start = index + 1
    return tasks


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Neighbours that can be put together to tasks: whole subpartitions, or the slices of one.

    Parameters
    ----------
    row
        The bytes of each neighbour.
    first
        The first subpartition.
    span
        Which of the neighbours.
    parts
        The ranges of upstream tasks if they are slices.
    split
        Which input is sliced.
    """

    row: SizeRow
    first: int
    span: Range
    parts: tuple[Range, ...] = ()
    split: int = 0

    def packed(self, limit: int) -> list[_Stretch]:
        """Return runs of neighbours of at most so many bytes each, one neighbour at least."""
        return [replace(self, span=span) for span in self.row.pack(limit)]

    @property
    def bytes(self) -> int:
        """How much it is."""
        return self.row.bytes_in(self.span)

    def halves(self) -> tuple[_Stretch, _Stretch]:
        """Return two runs of about as many bytes each."""
        start, end = self.span
        middles = range(start + 1, end)
        middle = min(middles, key=lambda at: max(self.row.bytes_in((start, at)), self.row.bytes_in((at, end))))
        return replace(self, span=(start, middle)), replace(self, span=(middle, end))

    def slices(self, inputs: int) -> tuple[Slice, ...]:
        """Return what a task with this run reads of every input."""
        start, end = self.span
        if not self.parts:
            return (Slice((self.first + start, self.first + end)),) * inputs
        whole = Slice((self.first, self.first + 1))
        part = replace(whole, mappers=(self.parts[start][0], self.parts[end - 1][1]))
        all_of_it = end - start == len(self.parts)
        return tuple(part if place == self.split and not all_of_it else whole for place in range(inputs))


_Parts = tuple[int, "Sequence[Range]"]
"""An input, and the ranges of upstream tasks in which one of its subpartitions is sliced."""


def _of_one_input(slices: Sequence[Mapping[int, Sequence[Range]]]) -> dict[int, _Parts]:
    """Return for each skewed subpartition the input that has most slices of it, and these.

    Neighbouring slices of one input can be read by one task. Combinations of two inputs' slices in general cannot: the
    task would find pairs that belong to another one.
    """
    found: dict[int, _Parts] = {}
    for place, own in enumerate(slices):
        for index, parts in own.items():
            if index not in found or len(parts) > len(found[index][1]):
                found[index] = place, parts
    return found


def _apart(row: SizeRow, skewed: Mapping[int, _Parts], most: int) -> list[tuple[int, _Parts]]:
    """Return the skewed subpartitions that can have tasks of their own if there are so many, the largest first."""
    apart: list[int] = []
    for index in sorted(skewed, key=lambda index: -int(row.sizes[index])):
        if len(_gaps([*apart, index], len(row))) + len(apart) + 1 <= most:
            apart.append(index)
    return [(index, skewed[index]) for index in apart]


def _stretches(row: SizeRow, apart: Mapping[int, _Parts]) -> list[_Stretch]:
    """Return what can be put together, in order."""
    found = [_Stretch(SizeRow(row.sizes[start:end]), start, (0, end - start)) for start, end in _gaps(apart, len(row))]
    for index, (place, parts) in apart.items():
        each = -(-int(row.sizes[index]) // len(parts))  # slices are cut to about the same size
        found.append(_Stretch(SizeRow([each] * len(parts)), index, (0, len(parts)), tuple(parts), place))
    return sorted(found, key=lambda one: one.first)


def _gaps(apart: Iterable[int], width: int) -> list[Range]:
    """Return the ranges of subpartitions between some, as far as there are any."""
    return [(one + 1, following) for one, following in pairwise([-1, *sorted(apart), width]) if one + 1 < following]


def _packed(stretches: Sequence[_Stretch], most: int, low: int) -> list[_Stretch]:
    """Return at most so many runs, each of as few bytes as that allows, but for a lower limit."""
    high = max(low, *(one.row.total for one in stretches))
    while low < high:
        middle = (low + high) // 2
        if sum(one.row.count(middle, most) for one in stretches) <= most:
            high = middle
        else:
            low = middle + 1
    return [run for one in stretches for run in one.packed(low)]


def _divided(runs: list[_Stretch], at_least: int) -> list[_Stretch]:
    """Return so many runs at least, the largest that can be divided in halves; fewer if no more can be."""

    def rank(run: _Stretch) -> tuple[int, int, int]:
        return (-run.bytes if run.span[1] - run.span[0] > 1 else 1, run.first, run.span[0])

    heap = [(rank(run), run) for run in runs]
    heapify(heap)
    while len(heap) < at_least and heap[0][0][0] <= 0:
        one, another = heap[0][1].halves()
        heapreplace(heap, (rank(one), one))
        heappush(heap, (rank(another), another))
    return sorted((run for _, run in heap), key=lambda run: (run.first, run.span))
