"""Division of an exchange among tasks so that the files they write have a target size. Pure arithmetic.

A subpartition that is too large for a file is read in several slices: by the slots that its rows are distributed over,
and by upstream task. Small subpartitions share a task.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.sizing.skew_cut import Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.sizing.packing import Range

_TOO_LARGE = 1.25
"""A file may have at most this many times the target size."""
_PARTS = (1, 0.95, 0.9, 0.85, 0.8, 1.05, 1.1, 1.15, 1.2, 1.25, 1.33)
"""Factors of the ideal number of files to try, because another number may divide the sizes more evenly."""
_CELLS_PER_FILE = 4
"""Cells (the rows of a slot by an upstream task) per file to aim for."""
_MAX_SLOTS = 32
_SIMILAR = 0.2
"""Slots whose bytes differ by at most this fraction are assumed to have the same distribution over upstream tasks."""


def slot_count(written_bytes: int, target: int, writers: int) -> int:
    """Return the number of slots per subpartition so that even a huge one can be divided into files of the target size.

    `written_bytes` are the bytes written into the exchange; all of them may be in a single subpartition. `target` is
    the target bytes of a file. `writers` is the number of upstream tasks, by which a slot can be divided too; 0 if
    unknown.
    """
    return max(1, min(_MAX_SLOTS, math.ceil(_CELLS_PER_FILE * written_bytes / target / max(writers, 1))))


def cut_for_files(
    sizes: Sequence[float], by_mapper: Callable[[int], Sequence[float]], target: float, slots: int = 1
) -> list[tuple[Slice, ...]]:
    """Return the slices that each task reads, so that it writes about `target` bytes; each subpartition is read once.

    `sizes` has the bytes of the files of each slot. Every `slots` neighbours form a subpartition of keys: rows with
    equal keys are in any of them. `by_mapper` returns the bytes of a slot by upstream task.
    """
    totals = [sum(sizes[low : low + slots]) for low in range(0, len(sizes), slots)]
    tasks: list[tuple[Slice, ...]] = []
    large = [index for index, size in enumerate(totals) if size > _TOO_LARGE * target]
    start = 0
    for index in [*large, len(totals)]:
        if index > start:
            runs = runs_near(totals[start:index], target)
            tasks += [(Slice(((start + low) * slots, (start + high) * slots)),) for low, high in runs]
        if index < len(totals):
            tasks += _cut_large(sizes, range(index * slots, (index + 1) * slots), by_mapper, target)
        start = index + 1
    return tasks or [(Slice((0, len(sizes))),)]


def _cut_large(
    sizes: Sequence[float], slots: range, by_mapper: Callable[[int], Sequence[float]], target: float
) -> list[tuple[Slice, ...]]:
    """Divide neighbouring slots at the target size, within a slot by upstream task."""
    similar_size, parts = -1.0, [1.0]
    cells: list[float] = []
    for slot in slots:
        # Bytes per upstream task are slow to read, and most slots are similar.
        if abs(sizes[slot] - similar_size) > _SIMILAR * similar_size:
            mapper_sizes = by_mapper(slot)
            similar_size, parts = sizes[slot], [size / max(sum(mapper_sizes), 1) for size in mapper_sizes]
        cells += [sizes[slot] * part for part in parts]
    return [_slices(slots.start, len(parts), *run) for run in runs_near(cells, target)]


def _slices(first: int, writers: int, low: int, high: int) -> tuple[Slice, ...]:
    """Return a run of cells as slices: the end of a slot, whole slots, and the start of a slot.

    Cells are ordered by slot, then by upstream task; `low` and `high` count from the first slot's first cell.
    """
    (start, head), (end, tail) = divmod(low, writers), divmod(high, writers)
    start, end = first + start, first + end
    if start == end:
        return (Slice((start, start + 1), (head, tail)),)
    slices = [Slice((start, start + 1), (head, writers))] if head else []
    if start + bool(head) < end:
        slices.append(Slice((start + bool(head), end)))
    if tail:
        slices.append(Slice((end, end + 1), (0, tail)))
    return tuple(slices)


def runs_near(weights: Sequence[float], target: float) -> list[Range]:
    """Return runs of neighbours with weights near a target, as few of them as possible outside the tolerance."""
    ideal_count = sum(weights) / target
    run_length = len(weights) / max(ideal_count, 1)
    equal = [len(weights) / length for length in (math.floor(run_length), math.ceil(run_length)) if length]
    counts = {max(1, min(len(weights), round(count))) for count in (*(ideal_count * part for part in _PARTS), *equal)}

    def distance(runs: list[Range]) -> tuple[int, float]:
        parts = [sum(weights[low:high]) / target for low, high in runs]
        far = sum(not 2 - _TOO_LARGE <= part <= _TOO_LARGE for part in parts)
        return far, sum((part - 1) ** 2 for part in parts) / len(parts)

    return min((even_runs(weights, count) for count in sorted(counts)), key=distance)


def even_runs(weights: Sequence[float], count: int) -> list[Range]:
    """Return at most `count` runs of neighbours, none of them empty, with weights as even as possible."""
    count = min(count, len(weights))
    sums = list(accumulate(weights))
    edges = [0]
    for number in range(1, count):
        ideal = sums[-1] * number / count
        index = bisect_left(sums, ideal)
        before = sums[index - 1] if index else 0.0
        edge = index if ideal - before < sums[index] - ideal else index + 1
        edges.append(min(max(edge, edges[-1] + 1), len(weights) - (count - number)))
    return [(low, high) for low, high in zip(edges, [*edges[1:], len(weights)], strict=True)]
