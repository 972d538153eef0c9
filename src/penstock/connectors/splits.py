"""Cutting files into splits: how many there are, and which size gives a wanted number. Pure arithmetic.

The packing is Spark's (``FilePartition.getFilePartitions``), so that the number found here is the number of tasks.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COARSE = 4
"""How many times the volume per task a split may hold where more splits would only be opened one after the other."""
_WAVES = 4
"""Splits for each core, so that one slow split does not hold the others up."""
OPEN_COST = 4 << 20
"""Bytes that could be read while a file is opened, so that small files are not packed without end."""


def count_splits(sizes: Sequence[int], splittable: Sequence[bool], split_bytes: int, open_cost: int = OPEN_COST) -> int:
    """Return how many tasks Spark makes of files.

    Parameters
    ----------
    sizes
        Bytes per file.
    splittable
        Whether each may be cut.
    split_bytes
        The most bytes of a split.
    open_cost
        Bytes a file counts in addition to its own.
    """
    limit = min(split_bytes, sum(sizes) + open_cost * len(sizes))
    pieces: list[int] = []
    for size, can_split in zip(sizes, splittable, strict=True):
        if can_split and size > limit > 0:
            whole, rest = divmod(size, limit)
            pieces += [limit] * whole + ([rest] if rest else [])
        elif size or not can_split:
            pieces.append(size)
    pieces.sort(reverse=True)
    count, filled, begun = 0, 0, False
    for piece in pieces:
        if begun and filled + piece > limit:
            count, filled = count + 1, 0
        filled += piece + open_cost
        begun = True
    return count + begun


def worth_opening(fine: int, coarse: int, cores: int | None) -> int:
    """Return how many splits to make: small ones as long as they keep all cores busy, else large ones.

    Every split costs something to open (a connection, the footer of a file, a task), so more splits than a few for each
    core are made only where they would hold `COARSE` times the volume per task otherwise.

    Parameters
    ----------
    fine
        How many splits of the volume per task there are.
    coarse
        How many of `COARSE` times that.
    cores
        How many tasks run at a time, None if that does not matter.
    """
    return fine if cores is None else max(coarse, min(fine, _WAVES * cores))


def why_not_more(fine: int, coarse: int, cores: int | None) -> str:
    """Return why `worth_opening` makes fewer splits than there could be, half a sentence; empty if it does not."""
    number = worth_opening(fine, coarse, cores)
    if number == fine:
        return ""
    if number == coarse:
        return (
            f"{number} large splits instead of {fine}, as more than {_WAVES} for each of {cores} cores only cost time"
        )
    return f"{number} splits instead of {fine}, as {_WAVES} for each of {cores} cores are Penstock's default"


def split_size_for(sizes: Sequence[int], splittable: Sequence[bool], wanted: int, open_cost: int = OPEN_COST) -> int:
    """Return the split size that makes the most tasks, but not more than `wanted`.

    Never more bytes than all files hold; at least 1.
    """
    low, high = 1, max(1, sum(sizes) + open_cost * len(sizes))
    if sum(sizes):
        low = max(1, sum(sizes) // (wanted + 1) // 2)
        while low > 1 and count_splits(sizes, splittable, low, open_cost) <= wanted:
            low //= 2
    while low < high:
        middle = (low + high) // 2
        if count_splits(sizes, splittable, middle, open_cost) <= wanted:
            high = middle
        else:
            low = middle + 1
    return high


def evenly(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Return the splits of each task: the largest first, each to the least loaded task.

    Parameters
    ----------
    sizes
        How large each split is.
    tasks
        The most tasks.

    Returns
    -------
    list[list[int]]
        The indices of the splits of each task, in order; no task without splits.
    """
    if len(sizes) <= tasks:
        return [[index] for index in range(len(sizes))]
    filled = [(0, task) for task in range(tasks)]
    splits_of: list[list[int]] = [[] for _ in range(tasks)]
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size, task = heapq.heappop(filled)
        splits_of[task].append(index)
        heapq.heappush(filled, (size + sizes[index], task))
    return [sorted(indices) for indices in splits_of if indices]
