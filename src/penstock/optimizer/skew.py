"""Arithmetic of splitting skewed subpartitions into slices by upstream task.

The rules follow the skewed join strategy of Flink and its parallelism decider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST = "largest"
"""The name of the figure in a split decision with the bytes of the largest subpartition."""
Range = tuple[int, int]
"""The start and the exclusive end of a range of upstream tasks."""


def median_size(sizes: Sequence[int]) -> int:
    """Return the median of sizes, at least 1; for an even count, the mean of the middle two, rounded down."""
    ordered = sorted(sizes)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
    return max(median, 1)


def skew_threshold(sizes: Sequence[int], factor: float, threshold: int) -> int:
    """Return the bytes above which a subpartition is skewed."""
    return int(max(median_size(sizes) * factor, threshold))


def split_target(sizes: Sequence[int], threshold: int, volume: int) -> int:
    """Return the target bytes of a slice: the volume per task, or the mean of the unskewed subpartitions if larger."""
    normal = [size for size in sizes if size <= threshold]
    return max(volume, sum(normal) // len(normal)) if normal else volume


def split_along_mappers(bytes_per_mapper: Sequence[int], target: int) -> list[Range]:
    """Return ranges of consecutive mappers with less than `target` bytes each.

    A mapper is never divided, so a range of a single mapper may have more.
    """
    ranges: list[Range] = []
    start, filled = 0, 0
    for mapper, size in enumerate(bytes_per_mapper):
        if mapper > start and filled + size >= target:
            ranges.append((start, mapper))
            start, filled = mapper, 0
        filled += size
    ranges.append((start, len(bytes_per_mapper)))
    return ranges
