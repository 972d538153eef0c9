"""Divides inputs with skewed subpartitions, and inputs of a rescale, among tasks. Pure arithmetic.

A task reads a `Slice` of each input. A skewed subpartition is divided into slices by upstream task. If the number of
tasks is limited, slices of a subpartition are merged again, and the least skewed subpartitions are not split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappush, heapreplace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from penstock.sizing.packing import Range, SizeList, spread_by_count
from penstock.sizing.pointwise import readers_of, writers_of

if TYPE_CHECKING:
    from penstock.sizing.parallelism import Bounds


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of an input that a task reads: the rows of some subpartitions that some upstream tasks wrote.

    `subpartitions` is the range of subpartitions. `mappers` is the range of upstream tasks, or None for all.
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
    ranges of upstream tasks that divide a skewed subpartition, by its index. `parallelism` is the exact number of tasks
    if it is set. If the inputs cannot be divided into that many tasks, or the minimum, some tasks read nothing.
    """
    low, high = (bounds.minimum, bounds.maximum) if parallelism is None else (parallelism, parallelism)
    tasks = _unlimited_tasks(sizes, slices, bounds.volume_per_task)
    if low <= len(tasks) <= high:
        return tasks
    # `min_limit` is the least limit of bytes for packing. Then the largest runs are halved until there are `max_tasks`.
    max_tasks, min_limit = (low, 1) if parallelism is not None or len(tasks) < low else (high, bounds.volume_per_task)
    totals = SizeList(np.sum(sizes, axis=0))
    split = _split_subpartitions(totals, _split_inputs(slices), max_tasks)
    # Try to split all of these, the larger half, the largest quarter, and so on, down to none.
    counts = [len(split) >> halvings for halvings in range(len(split).bit_length() + 1)]
    candidates = [_runs(totals, dict(split[:count])) for count in counts]
    divided = [_divide(_pack(runs, max_tasks, min_limit), max_tasks) for runs in candidates]
    runs = min(divided, key=lambda runs: max(run.bytes for run in runs))
    return [run.slices(len(sizes)) for run in runs] + [(_EMPTY,) * len(sizes)] * (low - len(runs))


def _unlimited_tasks(sizes: Sequence[np.ndarray], slices: Sequence[Mapping[int, Sequence[Range]]], volume: int) -> Cuts:
    """Return what each task reads if the number of tasks is unlimited."""
    total = np.sum(sizes, axis=0)
    tasks: Cuts = []
    start = 0
    for index in [*sorted(set().union(*slices)), len(total)]:
        if index > start:
            packed = SizeList(total[start:index]).pack(volume)
            tasks += [tuple(Slice((start + low, start + high)) for _ in sizes) for low, high in packed]
        if index < len(total):
            input_slices = [[Slice((index, index + 1), part) for part in parts.get(index, [None])] for parts in slices]
            tasks += product(*input_slices)
        start = index + 1
    return tasks


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive units that one task can read together: whole subpartitions, or slices of a single subpartition.

    `span` is the run's range of the units in `sizes` (bytes). The first unit of `sizes` is in the subpartition `first`.
    If units are slices, `parts` has their upstream tasks in the input with index `split_input`; else it is empty.
    """

    sizes: SizeList
    first: int
    span: Range
    parts: tuple[Range, ...] = ()
    split_input: int = 0

    @property
    def bytes(self) -> int:
        return self.sizes.bytes_in(self.span)

    def halves(self) -> tuple[_Run, _Run]:
        """Return the two runs of about the same size that this run consists of."""
        start, end = self.span
        middles, bytes_in = range(start + 1, end), self.sizes.bytes_in
        middle = min(middles, key=lambda middle: max(bytes_in((start, middle)), bytes_in((middle, end))))
        return replace(self, span=(start, middle)), replace(self, span=(middle, end))

    def slices(self, inputs: int) -> tuple[Slice, ...]:
        """Return the slice of each input that a task with this run reads."""
        start, end = self.span
        if not self.parts:
            return (Slice((self.first + start, self.first + end)),) * inputs
        whole = Slice((self.first, self.first + 1))
        part = replace(whole, mappers=(self.parts[start][0], self.parts[end - 1][1]))
        is_whole = end - start == len(self.parts)
        return tuple(part if index == self.split_input and not is_whole else whole for index in range(inputs))


_Parts = tuple[int, "Sequence[Range]"]
"""The index of an input, and the ranges of upstream tasks into which a subpartition of it is split."""


def _split_inputs(slices: Sequence[Mapping[int, Sequence[Range]]]) -> dict[int, _Parts]:
    """Return, by skewed subpartition, the input in which it has the most slices, and these slices.

    Only this input is split. If both were, a task with several slices of each would join pairs that others join too.
    """
    split_inputs: dict[int, _Parts] = {}
    for input_index, parts_of in enumerate(slices):
        for index, parts in parts_of.items():
            if index not in split_inputs or len(parts) > len(split_inputs[index][1]):
                split_inputs[index] = input_index, parts
    return split_inputs


def _split_subpartitions(totals: SizeList, skewed: Mapping[int, _Parts], max_tasks: int) -> list[tuple[int, _Parts]]:
    """Return the largest skewed subpartitions to split: they and the gaps between them need up to `max_tasks` tasks."""
    split: list[int] = []
    for index in sorted(skewed, key=lambda index: -int(totals.sizes[index])):
        if len(_gaps([*split, index], len(totals))) + len(split) + 1 <= max_tasks:
            split.append(index)
    return [(index, skewed[index]) for index in split]


def _runs(totals: SizeList, split: Mapping[int, _Parts]) -> list[_Run]:
    """Return a run for the slices of each split subpartition, and for each range of subpartitions between these."""
    gaps = _gaps(split, len(totals))
    runs = [_Run(SizeList(totals.sizes[start:end]), start, (0, end - start)) for start, end in gaps]
    for index, (split_input, parts) in split.items():
        slice_bytes = -(-int(totals.sizes[index]) // len(parts))  # slices have about the same size
        runs.append(_Run(SizeList([slice_bytes] * len(parts)), index, (0, len(parts)), tuple(parts), split_input))
    return sorted(runs, key=lambda run: run.first)


def _gaps(split: Iterable[int], subpartitions: int) -> list[Range]:
    """Return the non-empty ranges of subpartitions between those in `split`."""
    return [(low + 1, high) for low, high in pairwise([-1, *sorted(split), subpartitions]) if low + 1 < high]


def _pack(runs: Sequence[_Run], max_tasks: int, low: int) -> list[_Run]:
    """Divide runs into at most `max_tasks` runs by the smallest limit of bytes that allows it, at least `low`."""
    high = max(low, *(run.sizes.total for run in runs))
    while low < high:
        middle = (low + high) // 2
        if sum(run.sizes.count(middle, max_tasks) for run in runs) <= max_tasks:
            high = middle
        else:
            low = middle + 1
    return [replace(run, span=span) for run in runs for span in run.sizes.pack(low)]


def _divide(runs: list[_Run], tasks: int) -> list[_Run]:
    """Halve the largest run until there is a run for each of `tasks` tasks, or none can be halved."""

    def rank(run: _Run) -> tuple[int, int, int]:
        """Return a sort key: the largest run comes first, and runs of a single unit, which cannot be halved, last."""
        return (-run.bytes if run.span[1] - run.span[0] > 1 else 1, run.first, run.span[0])

    heap = [(rank(run), run) for run in runs]
    heapify(heap)
    while len(heap) < tasks and heap[0][0][0] <= 0:
        left, right = heap[0][1].halves()
        heapreplace(heap, (rank(left), left))
        heappush(heap, (rank(right), right))
    return sorted((run for _, run in heap), key=lambda run: (run.first, run.span))


def rescaled(writers: int, subpartitions: int, readers: int) -> list[tuple[Slice, ...]]:
    """Return the slices of an input that each of `readers` downstream tasks of a rescale reads.

    The module `pointwise` says which tasks are connected. Several readers of a writer divide its subpartitions.
    """
    if readers <= writers:
        sources = (writers_of(reader, writers, readers) for reader in range(readers))
        return [(Slice((0, subpartitions), (source.start, source.stop)),) for source in sources]
    return [
        (Slice(part, (writer, writer + 1)) if part[0] < part[1] else Slice((0, 0)),)
        for writer in range(writers)
        for part in spread_by_count(subpartitions, len(readers_of(writer, writers, readers)))
    ]
