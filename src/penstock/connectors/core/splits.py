"""Splits of files: their number for a split size, and the split size for a number of tasks. Pure arithmetic.

The packing is that of Spark (``FilePartition.getFilePartitions``), so the computed number is the number of tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

COARSE_FACTOR = 4
"""The size of a large split, as a multiple of the volume per task; used where each core reads several splits anyway."""
_SPLITS_PER_CORE = 4
"""Several splits for each core, so that a slow split does not delay the whole scan."""
OPEN_COST = 4 << 20
"""Cost of opening a file, in bytes that could be read meanwhile; it limits how many small files share a split."""


def count_splits(sizes: Sequence[int], splittable: Sequence[bool], split_bytes: int, open_cost: int = OPEN_COST) -> int:
    """Return the number of tasks with which Spark reads files of `sizes` bytes.

    `splittable` says which files can be split. `split_bytes` is the maximum size of a split; each part of a file counts
    `open_cost` bytes in addition to its size.
    """
    limit = min(split_bytes, sum(sizes) + open_cost * len(sizes))  # as in Spark, for a `minPartitionNum` of 1
    parts: list[int] = []
    for size, can_split in zip(sizes, splittable, strict=True):
        if can_split and size > limit > 0:
            whole, rest = divmod(size, limit)
            parts += [limit] * whole + ([rest] if rest else [])
        elif size or not can_split:  # Spark has no split for an empty file that can be split
            parts.append(size)
    parts.sort(reverse=True)
    full_tasks, task_bytes = 0, 0
    for part in parts:
        if task_bytes and task_bytes + part > limit:
            full_tasks, task_bytes = full_tasks + 1, 0
        task_bytes += part + open_cost
    return full_tasks + bool(parts)


def choose_split_count(fine: int, coarse: int, cores: int | None) -> tuple[int, str]:
    """Return the number of splits, and the reason why it is less than `fine`, a clause; empty if it is not less.

    `fine` is the number of splits if each has the volume per task, and `coarse` the number if each has several times
    this volume, such as `COARSE_FACTOR` times. Opening a split has a fixed cost (a connection, a file footer, a task).
    So the result is a few splits per core, or `coarse` if that is more. `cores` is the number of tasks that run
    concurrently; for None, the result is `fine`.
    """
    number = fine if cores is None else max(coarse, min(fine, _SPLITS_PER_CORE * cores))
    per_core = f"{_SPLITS_PER_CORE} for each of {cores} cores"
    if number == fine:
        return number, ""
    if number == coarse:
        return number, f"{number} large splits instead of {fine}, as these are already at least {per_core}"
    return number, f"{number} splits instead of {fine}, as {per_core} are Penstock's default"


def choose_file_splits(
    sizes: Sequence[int], splittable: Sequence[bool], volume: int, cores: int | None
) -> tuple[int, str]:
    """Return the number of splits of files for a `volume` per task in bytes, and the reason of `choose_split_count`."""
    fine = count_splits(sizes, splittable, volume)
    return choose_split_count(fine, count_splits(sizes, splittable, COARSE_FACTOR * volume), cores)


def split_size_for(sizes: Sequence[int], splittable: Sequence[bool], tasks: int, open_cost: int = OPEN_COST) -> int:
    """Return the smallest split size in bytes with which Spark reads the files in at most `tasks` tasks.

    The result is at least 1, and at most the total size of the files and their open costs.
    """
    low, high = 1, max(1, sum(sizes) + open_cost * len(sizes))
    if sum(sizes):  # begin the search near the average size per task
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


def distribute_evenly(items: Sequence[Item], sizes: Sequence[int], tasks: int) -> list[list[Item]]:
    """Distribute items of some sizes over at most `tasks` tasks: the largest first, each to the least loaded task.

    Return the items of each task in their original order; tasks without items are omitted.
    """
    if len(items) <= tasks:
        return [[item] for item in items]
    loads = [(0, task) for task in range(tasks)]  # a heap: the least loaded task is the first
    indices_of: list[list[int]] = [[] for _ in range(tasks)]
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, task = heapq.heappop(loads)
        indices_of[task].append(index)
        heapq.heappush(loads, (load + sizes[index], task))
    return [[items[index] for index in sorted(indices)] for indices in indices_of if indices]
