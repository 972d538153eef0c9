"""Cutting an exchange so that the files written behind it have a wanted size. Pure arithmetic.

A subpartition that is too large for a file (a partition that holds most of the rows) is read in several pieces: by the
slots its rows are dealt out to, and along the tasks that wrote it. Small ones share a task.
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
"""A file may be so many times as large as wanted."""
_PARTS = (1, 0.95, 0.9, 0.85, 0.8, 1.05, 1.1, 1.15, 1.2, 1.25, 1.33)
"""How many times as many files as there would be of the wanted size are tried: neighbours may part better so."""
_PIECES = 4
"""How many pieces that can be read apart should make a file."""
_MOST_SLOTS = 32
_ALIKE = 0.2
"""Slots whose bytes differ by no more than this part are taken to be written alike."""


def slot_count(known_bytes: int, target: int, writers: int) -> int:
    """Return in how many slots the rows of a subpartition lie, so that a huge one can be cut into files finely enough.

    Parameters
    ----------
    known_bytes
        What is written into the exchange; all of it may belong into one subpartition.
    target
        The wanted bytes of a file.
    writers
        How many tasks write: a slot can be cut along them too.
    """
    return max(1, min(_MOST_SLOTS, math.ceil(_PIECES * known_bytes / target / max(writers, 1))))


def cut_for_files(
    sizes: Sequence[float], by_mapper: Callable[[int], Sequence[float]], target: float, slots: int = 1
) -> list[tuple[Slice, ...]]:
    """Return the slices that each task reads, so that it writes about `target` bytes.

    Parameters
    ----------
    sizes
        The bytes on disk that each subpartition will make. Each `slots` of them in a row are one: rows with equal keys
        lie in any of these.
    by_mapper
        Returns those of one subpartition by the tasks that wrote it.
    target
        The wanted bytes of a file.
    slots
        See `slot_count`.

    Returns
    -------
    list[tuple[Slice, ...]]
        At least one, covering every subpartition once.
    """
    wholes = [sum(sizes[low : low + slots]) for low in range(0, len(sizes), slots)]
    tasks: list[tuple[Slice, ...]] = []
    large = [index for index, size in enumerate(wholes) if size > _TOO_LARGE * target]
    start = 0
    for index in [*large, len(wholes)]:
        if index > start:
            runs = runs_near(wholes[start:index], target)
            tasks += [(Slice(((start + low) * slots, (start + high) * slots)),) for low, high in runs]
        if index < len(wholes):
            tasks += _cut_large(sizes, range(index * slots, (index + 1) * slots), by_mapper, target)
        start = index + 1
    return tasks or [(Slice((0, len(sizes))),)]


def _cut_large(
    sizes: Sequence[float], slots: range, by_mapper: Callable[[int], Sequence[float]], target: float
) -> list[tuple[Slice, ...]]:
    """Cut slots that lie in a row where it suits the wanted size, within a slot along the tasks that wrote it."""
    like, parts = -1.0, [1.0]
    cells: list[float] = []
    for slot in slots:
        if abs(sizes[slot] - like) > _ALIKE * like:  # asking what each task wrote is slow, and most slots are alike
            found = by_mapper(slot)
            like, parts = sizes[slot], [size / max(sum(found), 1) for size in found]
        cells += [sizes[slot] * part for part in parts]
    return [_pieces(slots.start, len(parts), *run) for run in runs_near(cells, target)]


def _pieces(first: int, writers: int, low: int, high: int) -> tuple[Slice, ...]:
    """Return a run of cells as slices: the end of a slot, whole slots, the beginning of one, as far as there are such.

    Cells lie by slot, and within a slot by the task that wrote them; `low` and `high` count from the first slot's.
    """
    (start, head), (end, tail) = divmod(low, writers), divmod(high, writers)
    start, end = first + start, first + end
    if start == end:
        return (Slice((start, start + 1), (head, tail)),)
    pieces = [Slice((start, start + 1), (head, writers))] if head else []
    if start + bool(head) < end:
        pieces.append(Slice((start + bool(head), end)))
    if tail:
        pieces.append(Slice((end, end + 1), (0, tail)))
    return tuple(pieces)


def runs_near(weights: Sequence[float], target: float) -> list[Range]:
    """Return runs of neighbours with weights near a target: few too far off, the others close to it."""
    about = sum(weights) / target
    together = len(weights) / max(about, 1)
    equal = [len(weights) / whole for whole in (math.floor(together), math.ceil(together)) if whole]
    counts = {max(1, min(len(weights), round(count))) for count in (*(about * part for part in _PARTS), *equal)}

    def distance(runs: list[Range]) -> tuple[int, float]:
        parts = [sum(weights[low:high]) / target for low, high in runs]
        far = sum(not 2 - _TOO_LARGE <= part <= _TOO_LARGE for part in parts)
        return far, sum((part - 1) ** 2 for part in parts) / len(parts)

    return min((even_runs(weights, count) for count in sorted(counts)), key=distance)


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
