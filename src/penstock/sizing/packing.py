"""Packs a list of sizes into contiguous ranges, and searches for a size limit that gives an allowed number of ranges.

The rules follow Flink's adaptive batch scheduler (its decider for vertex parallelism and input infos).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Range = tuple[int, int]
"""Start and end of a range of indices; the end is exclusive."""


class SizeList:
    """The sizes in bytes of at least one unit, in order. A unit is a subpartition, or a slice of a subpartition."""

    def __init__(self, sizes: Sequence[int] | np.ndarray) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int64)
        if self.sizes.ndim != 1 or not len(self.sizes) or self.sizes.min() < 0:
            raise ValueError("at least one size is needed, and no size may be negative")
        self._ends = np.concatenate(([0], np.cumsum(self.sizes)))
        self.total = int(self._ends[-1])

    def __len__(self) -> int:
        return len(self.sizes)

    def bytes_in(self, span: Range) -> int:
        """Return the bytes of a range."""
        return int(self._ends[span[1]] - self._ends[span[0]])

    def _cuts(self, limit: int, stop: int) -> list[int]:
        """Return the starts of the ranges that `pack` returns, and the end of the last; stop after `stop` ranges."""
        ends, last = self._ends, len(self.sizes)
        # The end of a range for every possible start, by a single vectorized search.
        reach = np.maximum(ends[:-1] + limit, ends[1:])
        following = (np.searchsorted(ends, reach, "right") - 1).tolist()
        cuts = [0]
        position = 0
        for _ in range(min(stop, last)):
            if position >= last:
                break
            position = following[position]
            cuts.append(position)
        return cuts

    def pack(self, limit: int) -> list[Range]:
        """Return ranges of at most `limit` bytes each, filled greedily from the left.

        A unit larger than `limit` gets a range of its own, and units of size zero join the range before them.
        """
        return list(pairwise(self._cuts(limit, len(self))))

    def count(self, limit: int, stop: int | None = None) -> int:
        """Return how many ranges `pack` would return; `stop` + 1 if there are more than `stop`."""
        stop = len(self) if stop is None else stop
        cuts = self._cuts(limit, stop)
        return len(cuts) - 1 if cuts[-1] == len(self) else stop + 1

    def largest_limit(self, at_least: int, low: int, high: int) -> int:
        """Return the largest limit in [low, high] that gives at least `at_least` ranges, -1 if `low` gives fewer."""
        if self.count(low, at_least) < at_least:
            return -1
        while low < high:
            middle = (low + high + 1) // 2
            if self.count(middle, at_least) >= at_least:
                low = middle
            else:
                high = middle - 1
        return low

    def smallest_limit(self, at_most: int, low: int, high: int) -> int:
        """Return the smallest limit in [low, high] that gives at most `at_most` ranges, -1 if `high` gives more.

        The search starts just above the even share of the bytes and takes growing steps, because the result is close
        to this share unless single units are huge. Each trial narrows the bounds. After a success, the bytes of the
        largest range are the upper bound. After a failure, the smallest limit with a longer range is the lower bound.
        """
        if high < self.total and self.count(high, at_most) > at_most:
            return -1
        even = self.total // max(at_most, 1)
        step = max(1, even >> 5)
        trial = even + step if low <= even + step < high else (low + high) // 2
        while low < high:
            count, largest, next_limit = self._trial(trial, at_most, high)
            if count <= at_most:
                high = max(low, min(trial, largest))
                trial = (low + high) // 2
            else:
                low = max(trial + 1, next_limit)
                step *= 2
                trial = min(low + step, (low + high) // 2)
        return high

    def _trial(self, limit: int, stop: int, high: int) -> tuple[int, int, int]:
        """Return the count, the largest range's bytes, and the smallest limit with a longer range, `high` if none."""
        cuts = self._cuts(limit, stop)
        ends = self._ends[cuts]
        largest = int((ends[1:] - ends[:-1]).max())
        if cuts[-1] == len(self):
            return len(cuts) - 1, largest, high
        lengthened = self._ends[np.array(cuts[1:]) + 1] - ends[:-1]
        return stop + 1, largest, int(lengthened.min())


def spread_by_count(units: int, ranges: int) -> list[Range]:
    """Return `ranges` ranges over `units` units whose lengths differ by at most one."""
    return [(i * units // ranges, (i + 1) * units // ranges) for i in range(ranges)]


def pack_within(
    sizes: SizeList, volume: int, lower: int, upper: int, lower_from: str = "", upper_from: str = ""
) -> tuple[list[Range], str]:
    """Return contiguous ranges of about `volume` bytes, between `lower` and `upper` in number if possible.

    If a limit of `volume` bytes gives too few ranges, take the largest limit that gives at least `lower`, and then the
    smallest that gives the same number, which is the most even. If it gives too many ranges, take the smallest limit
    that gives at most `upper`. If no limit gives an allowed number, return ranges of about equally many units.

    Also return why the limit is not `volume`, as a clause with the bound's origin (`lower_from`, `upper_from`), or "".
    """
    count = sizes.count(volume, upper)
    if lower <= count <= upper:
        return sizes.pack(volume), ""
    if count < lower:
        low = min(volume, int(sizes.sizes.min()))
        limit = sizes.largest_limit(lower, low, volume)
        if limit >= 0:
            limit = sizes.smallest_limit(sizes.count(limit), low, limit)
        reason = f"raised to the minimum parallelism {lower} ({lower_from})"
    else:
        limit = sizes.smallest_limit(upper, volume, max(sizes.total, volume))
        reason = f"limited by the maximum parallelism {upper} ({upper_from})"
    if limit >= 0:
        ranges = sizes.pack(limit)
        if lower <= len(ranges) <= upper:
            return ranges, reason
    number = max(1, min(len(sizes), upper))
    return spread_by_count(len(sizes), number), f"{reason}, with about equally many partitions in each task"


def pack_exactly(sizes: SizeList, number: int) -> list[Range]:
    """Return `number` contiguous ranges of about equal bytes; with fewer units, some ranges are ``(0, 0)``."""
    ranges, _ = pack_within(sizes, max(sizes.total, 1), number, number)
    if len(ranges) != number:
        ranges = spread_by_count(len(sizes), number)
    return [span if span[0] < span[1] else (0, 0) for span in ranges]
