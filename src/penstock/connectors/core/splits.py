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
    """Return the number of tasks with which Spark reads files of some sizes, of which some may be split.

    `split_bytes` is the maximum size of a split; each file counts `open_cost` bytes in addition to its size.
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


def choose_split_count(fine: int, coarse: int, cores: int | None) -> tuple[int, str]:
    """Return the number of splits, and why it is less than `fine`, a clause (empty if it is not).

    Opening a split has a fixed cost (a connection, a file footer, a task). So there are more than a few splits per core
    only if splits would otherwise exceed `COARSE` times the volume per task: `fine` and `coarse` are the numbers of
    splits of the volume, and of `COARSE` times the volume. `cores` is how many tasks run at a time; None returns
    `fine`.
    """
    number = fine if cores is None else max(coarse, min(fine, _WAVES * cores))
    per_core = f"{_WAVES} for each of {cores} cores"
    if number == fine:
        return number, ""
    if number == coarse:
        return number, f"{number} large splits instead of {fine}, as more than {per_core} only cost time"
    return number, f"{number} splits instead of {fine}, as {per_core} are Penstock's default"


def choose_file_splits(
    sizes: Sequence[int], splittable: Sequence[bool], volume: int, cores: int | None
) -> tuple[int, str]:
    """Return the number of splits of files for a volume per task, as `choose_split_count` does."""
    fine = count_splits(sizes, splittable, volume)
    return choose_split_count(fine, count_splits(sizes, splittable, COARSE * volume), cores)


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
    """Distribute splits over at most `tasks` tasks: the largest splits first, each to the least loaded task.

    Return the split indices of each task in ascending order; tasks without splits are left out.
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
