"""Divides an exchange among tasks so that the files they write have a target size. Pure arithmetic.

A subpartition consists of slots, over which its rows are spread by hash. A subpartition that is too large for a file is
divided among tasks by slot and by upstream task. Small subpartitions share a task.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.sizing.skew_cut import Slice

if TYPE_CHECKING:
    from penstock.sizing.packing import Range

_TOLERANCE = 1.25
"""A file should have at most this many times the target size, and at least 0.75 times (2 - 1.25)."""
_COUNT_FACTORS = (1, 0.95, 0.9, 0.85, 0.8, 1.05, 1.1, 1.15, 1.2, 1.25, 1.33)
"""Multiples of the ideal number of files to try, because another number may divide the sizes more evenly."""
_CELLS_PER_FILE = 4
"""The desired number of cells per file; a cell has the rows of a slot that one upstream task wrote."""
_MAX_SLOTS = 32  # per subpartition
_SIMILAR = 0.2
"""Slots whose bytes differ by at most this fraction are assumed to have the same distribution over upstream tasks."""


def slot_count(written_bytes: int, target: int, writers: int) -> int:
    """Return how many slots a subpartition needs, so that tasks can divide it into files of the target size.

    `written_bytes` are the bytes written into the exchange; all of them may be in a single subpartition. `target` is
    the target bytes of a file. `writers` is the number of upstream tasks that may divide a slot; 0 if unknown.
    """
    return max(1, min(_MAX_SLOTS, math.ceil(_CELLS_PER_FILE * written_bytes / target / max(writers, 1))))


def cut_for_files(
    sizes: Sequence[float], by_mapper: Callable[[int], Sequence[float]], target: float, slots: int = 1
) -> list[tuple[Slice, ...]]:
    """Return the slices that each task reads, so that it writes about `target` bytes; each subpartition is read once.

    `sizes` has the bytes on disk of each slot. Every `slots` consecutive slots form a subpartition, and rows with equal
    keys may be in any of them. Slices are ranges of slots. `by_mapper` returns the bytes of a slot by upstream task.
    """
    totals = [sum(sizes[low : low + slots]) for low in range(0, len(sizes), slots)]
    tasks: list[tuple[Slice, ...]] = []
    large = [index for index, size in enumerate(totals) if size > _TOLERANCE * target]
    start = 0
    for index in [*large, len(totals)]:
        if index > start:
            runs = runs_near(totals[start:index], target)
            tasks += [(Slice(((start + low) * slots, (start + high) * slots)),) for low, high in runs]
        if index < len(totals):
            tasks += _cut_large(sizes, range(index * slots, (index + 1) * slots), by_mapper, target)
        start = index + 1
    return tasks or [(Slice((0, len(sizes))),)]  # without slots, a task that reads nothing


def _cut_large(
    sizes: Sequence[float], slot_range: range, by_mapper: Callable[[int], Sequence[float]], target: float
) -> list[tuple[Slice, ...]]:
    """Divide a large subpartition into ranges of slots of about `target` bytes; a slot may be cut by upstream task."""
    similar_size, fractions = -1.0, [1.0]
    cells: list[float] = []
    for slot in slot_range:
        # Bytes per upstream task are slow to read, and most slots are similar.
        if abs(sizes[slot] - similar_size) > _SIMILAR * similar_size:
            mapper_sizes = by_mapper(slot)
            similar_size, fractions = sizes[slot], [size / max(sum(mapper_sizes), 1) for size in mapper_sizes]
        cells += [sizes[slot] * fraction for fraction in fractions]
    return [_slices(slot_range.start, len(fractions), *run) for run in runs_near(cells, target)]


def _slices(first_slot: int, writers: int, low: int, high: int) -> tuple[Slice, ...]:
    """Return a run of cells as slices: the end of a slot, whole slots, the start of a slot; or part of a single slot.

    Cells are ordered by slot, then by upstream task; `low` and `high` count from the first cell of `first_slot`.
    """
    (start, head), (end, tail) = divmod(low, writers), divmod(high, writers)
    start, end = first_slot + start, first_slot + end
    if start == end:
        return (Slice((start, start + 1), (head, tail)),)
    slices = [Slice((start, start + 1), (head, writers))] if head else []
    if start + bool(head) < end:
        slices.append(Slice((start + bool(head), end)))
    if tail:
        slices.append(Slice((end, end + 1), (0, tail)))
    return tuple(slices)


def runs_near(weights: Sequence[float], target: float) -> list[Range]:
    """Return ranges of consecutive weights with sums near a target, as few sums as possible outside `_TOLERANCE`."""
    ideal_count = sum(weights) / target
    run_length = len(weights) / max(ideal_count, 1)
    # If all weights are equal, the best count divides them into ranges of the same length.
    equal = [len(weights) / length for length in (math.floor(run_length), math.ceil(run_length)) if length]
    near = [ideal_count * factor for factor in _COUNT_FACTORS]
    counts = {max(1, min(len(weights), round(count))) for count in (*near, *equal)}

    def distance(runs: list[Range]) -> tuple[int, float]:
        ratios = [sum(weights[low:high]) / target for low, high in runs]
        outside = sum(not 2 - _TOLERANCE <= ratio <= _TOLERANCE for ratio in ratios)
        return outside, sum((ratio - 1) ** 2 for ratio in ratios) / len(ratios)

    return min((even_runs(weights, count) for count in sorted(counts)), key=distance)


def even_runs(weights: Sequence[float], count: int) -> list[Range]:
    """Return at most `count` non-empty ranges of consecutive weights, with sums as even as possible."""
    count = min(count, len(weights))
    sums = list(accumulate(weights))
    starts = [0]
    for number in range(1, count):
        ideal = sums[-1] * number / count
        index = bisect_left(sums, ideal)
        before = sums[index - 1] if index else 0.0
        start = index if ideal - before < sums[index] - ideal else index + 1
        starts.append(min(max(start, starts[-1] + 1), len(weights) - (count - number)))
    return [(low, high) for low, high in zip(starts, [*starts[1:], len(weights)], strict=True)]
