"""Splits of files: their number for a split size, and the split size for a number of tasks. Pure arithmetic.

The packing is that of Spark (``FilePartition.getFilePartitions``), so the computed number is the number of tasks.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COARSE = 4
"""The size of a large split, as a multiple of the volume per task; used where each core reads several splits anyway."""
_WAVES = 4
"""Splits per core; several, so that a slow split does not delay the whole scan."""
OPEN_COST = 4 << 20
"""Cost of opening a file, in bytes that could be read meanwhile; it limits how many small files share a split."""


def count_splits(sizes: Sequence[int], splittable: Sequence[bool], split_bytes: int, open_cost: int = OPEN_COST) -> int:
    """Return the number of tasks with which Spark reads files.

    Parameters
    ----------
    sizes
        Bytes per file.
    splittable
        Whether each file may be split.
    split_bytes
        The maximum bytes of a split.
    open_cost
        Bytes that each file counts in addition to its size.
    """
    limit = min(split_bytes, sum(sizes) + open_cost * len(sizes))
    chunks: list[int] = []
    for size, can_split in zip(sizes, splittable, strict=True):
        if can_split and size > limit > 0:
            whole, rest = divmod(size, limit)
            chunks += [limit] * whole + ([rest] if rest else [])
        elif size or not can_split:
            chunks.append(size)
    chunks.sort(reverse=True)
    count, filled, started = 0, 0, False
    for chunk in chunks:
        if started and filled + chunk > limit:
            count, filled = count + 1, 0
        filled += chunk + open_cost
        started = True
    return count + started


def choose_split_count(fine: int, coarse: int, cores: int | None) -> int:
    """Return the number of splits: small splits up to a few per core, beyond that larger ones.

    Opening a split has a fixed cost (a connection, a file footer, a task). So there are more than a few splits per core
    only if splits would otherwise exceed `COARSE` times the volume per task.

    Parameters
    ----------
    fine
        The number of splits of the volume per task.
    coarse
        The number of splits of `COARSE` times the volume per task.
    cores
        How many tasks run at a time; None returns `fine`.
    """
    return fine if cores is None else max(coarse, min(fine, _WAVES * cores))


def fewer_splits_reason(fine: int, coarse: int, cores: int | None) -> str:
    """Return why `choose_split_count` returns fewer than `fine`, a clause; empty if it does not."""
    number = choose_split_count(fine, coarse, cores)
    if number == fine:
        return ""
    if number == coarse:
        return (
            f"{number} large splits instead of {fine}, as more than {_WAVES} for each of {cores} cores only cost time"
        )
    return f"{number} splits instead of {fine}, as {_WAVES} for each of {cores} cores are Penstock's default"


def split_size_for(sizes: Sequence[int], splittable: Sequence[bool], tasks: int, open_cost: int = OPEN_COST) -> int:
    """Return the split size in bytes that gives the most tasks, at most `tasks`.

    It is at least 1, and at most the total size of the files and their open costs.
    """
    low, high = 1, max(1, sum(sizes) + open_cost * len(sizes))
    if sum(sizes):
        low = max(1, sum(sizes) // (tasks + 1) // 2)
        while low > 1 and count_splits(sizes, splittable, low, open_cost) <= tasks:
            low //= 2
    while low < high:
        middle = (low + high) // 2
        if count_splits(sizes, splittable, middle, open_cost) <= tasks:
            high = middle
        else:
            low = middle + 1
    return high


def evenly(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Distribute splits over tasks: the largest splits first, each to the least loaded task.

    Parameters
    ----------
    sizes
        The size of each split.
    tasks
        The maximum number of tasks.

    Returns
    -------
    list[list[int]]
        The split indices of each task in ascending order; tasks without splits are left out.
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
