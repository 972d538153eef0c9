"""Division of inputs with skewed subpartitions, and of rescaled inputs, among tasks. Pure arithmetic.

A task reads a range of whole subpartitions, or a slice of one: the rows of some upstream tasks. If the number of tasks
is limited, slices are merged again, and the least skewed subpartitions are not split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heappush, heapreplace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from penstock.sizing.packing import Range, SizeRow, spread_by_count
from penstock.sizing.pointwise import readers_of, writers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sizing.parallelism import Bounds


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of an input that a task reads: a range of subpartitions, of all or some upstream tasks.

    `subpartitions` is the range. If `mappers` is set, it is a single subpartition or all of them. `mappers` is the
    range of upstream tasks, or None for all.
    """

    subpartitions: Range
    mappers: Range | None = None


_EMPTY = Slice((0, 0))

Cuts = list[tuple[Slice, ...]]
"""The slice that each task reads of each input."""


def cut_skewed(
    sizes: Sequence[np.ndarray],
    slices: Sequence[Mapping[int, Sequence[Range]]],
    bounds: Bounds,
    parallelism: int | None = None,
) -> Cuts:
    """Return what each task reads of inputs that are joined by subpartition.

    Subpartitions that are not skewed are packed by the volume per task. For a skewed subpartition, every slice
    of an input is joined with every slice of the others, each combination in its own task if the bounds allow.

    `sizes` are the bytes per subpartition of each input, shape (subpartitions,). `slices` has, for each input, the
    ranges of upstream tasks that divide its skewed subpartitions. `parallelism` is the exact number of tasks, if it is
    set; some tasks read nothing if there is too little to divide.
    """
    low, high = (bounds.minimum, bounds.maximum) if parallelism is None else (parallelism, parallelism)
    tasks = _combined(sizes, slices, bounds.volume_per_task)
    if low <= len(tasks) <= high:
        return tasks
    most, least_limit = (low, 1) if parallelism is not None or len(tasks) < low else (high, bounds.volume_per_task)
    row = SizeRow(np.sum(sizes, axis=0))
    apart = _apart(row, _split_inputs(slices), most)
    candidates = [_stretches(row, dict(apart[: len(apart) >> halved])) for halved in range(len(apart).bit_length() + 1)]
    divided = [_divided(_packed(stretches, most, least_limit), most) for stretches in candidates]
    runs = min(divided, key=lambda runs: max(run.bytes for run in runs))
    return [run.slices(len(sizes)) for run in runs] + [(_EMPTY,) * len(sizes)] * (low - len(runs))


def _combined(sizes: Sequence[np.ndarray], slices: Sequence[Mapping[int, Sequence[Range]]], volume: int) -> Cuts:
    """Return the tasks without a limit on their number."""
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
    """Neighbours that one task can read together: whole subpartitions, or slices of a single subpartition.

    `row` are the bytes of each neighbour. `span` is the range of neighbours. `parts` are the ranges of upstream tasks
    if the neighbours are slices, of the input with index `split`.
    """

    row: SizeRow
    first: int
    span: Range
    parts: tuple[Range, ...] = ()
    split: int = 0

    @property
    def bytes(self) -> int:
        return self.row.bytes_in(self.span)

    def halves(self) -> tuple[_Stretch, _Stretch]:
        """Return two runs with about the same number of bytes."""
        start, end = self.span
        middles = range(start + 1, end)
        middle = min(middles, key=lambda at: max(self.row.bytes_in((start, at)), self.row.bytes_in((at, end))))
        return replace(self, span=(start, middle)), replace(self, span=(middle, end))

    def slices(self, inputs: int) -> tuple[Slice, ...]:
        """Return what a task with this run reads of each input."""
        start, end = self.span
        if not self.parts:
            return (Slice((self.first + start, self.first + end)),) * inputs
        whole = Slice((self.first, self.first + 1))
        part = replace(whole, mappers=(self.parts[start][0], self.parts[end - 1][1]))
        is_whole = end - start == len(self.parts)
        return tuple(part if index == self.split and not is_whole else whole for index in range(inputs))


_Parts = tuple[int, "Sequence[Range]"]
"""The index of an input, and the ranges of upstream tasks that divide a subpartition of it."""


def _split_inputs(slices: Sequence[Mapping[int, Sequence[Range]]]) -> dict[int, _Parts]:
    """Return the input with the most slices of each skewed subpartition, and these slices.

    Only slices of the same input can share a task. If slices of two inputs did, the task would also join pairs of
    another task.
    """
    most: dict[int, _Parts] = {}
    for number, own in enumerate(slices):
        for index, parts in own.items():
            if index not in most or len(parts) > len(most[index][1]):
                most[index] = number, parts
    return most


def _apart(row: SizeRow, skewed: Mapping[int, _Parts], most: int) -> list[tuple[int, _Parts]]:
    """Return the skewed subpartitions that get their own tasks if there are at most `most` tasks, largest first."""
    apart: list[int] = []
    for index in sorted(skewed, key=lambda index: -int(row.sizes[index])):
        if len(_gaps([*apart, index], len(row))) + len(apart) + 1 <= most:
            apart.append(index)
    return [(index, skewed[index]) for index in apart]


def _stretches(row: SizeRow, apart: Mapping[int, _Parts]) -> list[_Stretch]:
    gaps = _gaps(apart, len(row))
    stretches = [_Stretch(SizeRow(row.sizes[start:end]), start, (0, end - start)) for start, end in gaps]
    for index, (split, parts) in apart.items():
        each = -(-int(row.sizes[index]) // len(parts))  # slices have about the same size
        stretches.append(_Stretch(SizeRow([each] * len(parts)), index, (0, len(parts)), tuple(parts), split))
    return sorted(stretches, key=lambda stretch: stretch.first)


def _gaps(apart: Iterable[int], width: int) -> list[Range]:
    """Return the non-empty ranges of subpartitions between those in `apart`."""
    return [(low + 1, high) for low, high in pairwise([-1, *sorted(apart), width]) if low + 1 < high]


def _packed(stretches: Sequence[_Stretch], most: int, low: int) -> list[_Stretch]:
    """Return at most `most` runs under the smallest limit that allows it, which is at least `low` bytes."""
    high = max(low, *(stretch.row.total for stretch in stretches))
    while low < high:
        middle = (low + high) // 2
        if sum(stretch.row.count(middle, most) for stretch in stretches) <= most:
            high = middle
        else:
            low = middle + 1
    return [replace(stretch, span=span) for stretch in stretches for span in stretch.row.pack(low)]


def _divided(runs: list[_Stretch], at_least: int) -> list[_Stretch]:
    """Halve the largest runs until there are `at_least`, or none can be halved."""

    def rank(run: _Stretch) -> tuple[int, int, int]:
        return (-run.bytes if run.span[1] - run.span[0] > 1 else 1, run.first, run.span[0])

    heap = [(rank(run), run) for run in runs]
    heapify(heap)
    while len(heap) < at_least and heap[0][0][0] <= 0:
        left, right = heap[0][1].halves()
        heapreplace(heap, (rank(left), left))
        heappush(heap, (rank(right), right))
    return sorted((run for _, run in heap), key=lambda run: (run.first, run.span))


def rescaled(writers: int, subpartitions: int, readers: int) -> list[tuple[Slice, ...]]:
    """Return the slices that each reader of a rescale reads of the subpartitions that each writer wrote.

    `pointwise` says which tasks are connected. The readers of a writer share its subpartitions, in order.
    """
    if readers <= writers:
        sources = (writers_of(reader, writers, readers) for reader in range(readers))
        return [(Slice((0, subpartitions), (source.start, source.stop)),) for source in sources]
    return [
        (Slice(part, (writer, writer + 1)) if part[0] < part[1] else Slice((0, 0)),)
        for writer in range(writers)
        for part in spread_by_count(subpartitions, len(readers_of(writer, writers, readers)))
    ]
