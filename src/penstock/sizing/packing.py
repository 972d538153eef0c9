"""Packing of a row of sizes into contiguous ranges, and the search for a limit with an allowed number of ranges.

The rules follow Flink's adaptive batch scheduler (its decider for vertex parallelism and input infos).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

Range = tuple[int, int]
"""Start and end of a range of indices; the end is exclusive."""


class SizeRow:
    """Sizes of consecutive units (subpartitions, or slices of them), with their prefix sums.

    `sizes` has the bytes per unit, not negative. At least one unit.
    """

    def __init__(self, sizes: Sequence[int] | np.ndarray) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int64)
        if self.sizes.ndim != 1 or not len(self.sizes) or self.sizes.min() < 0:
            raise ValueError("a row of at least one size is needed, none of them negative")
        self._ends = np.concatenate(([0], np.cumsum(self.sizes)))
        self.total = int(self._ends[-1])

    def __len__(self) -> int:
        return len(self.sizes)

    def bytes_in(self, span: Range) -> int:
        """Return the bytes of a range."""
        return int(self._ends[span[1]] - self._ends[span[0]])

    def _cuts(self, limit: int, stop: int) -> list[int]:
        """Return the starts of the packed ranges and the end of the last; give up after `stop` ranges."""
        ends, last = self._ends, len(self.sizes)
        # The end of a range for every possible start, by a single vectorised search.
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

        A range holds at least one unit, whatever its size; units of size zero join the range before them.
        """
        return list(pairwise(self._cuts(limit, len(self))))

    def count(self, limit: int, stop: int | None = None) -> int:
        """Return how many ranges `pack` would return; counting stops once there are more than `stop`."""
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

        The search gallops up from the even share, because the result is just above it unless single units are huge.
        Each trial narrows the bounds: a success proves that the size of its largest range suffices, a failure proves
        that every limit fails that lengthens none of its ranges.
        """
        if high < self.total and self.count(high, at_most) > at_most:
            return -1
        even = self.total // max(at_most, 1)
        step = max(1, even >> 5)
        trial = even + step if low <= even + step < high else (low + high) // 2
        while low < high:
            count, largest, lengthens = self._trial(trial, at_most, high)
            if count <= at_most:
                high = max(low, min(trial, largest))
                trial = (low + high) // 2
            else:
                low = max(trial + 1, lengthens)
                step *= 2
                trial = min(low + step, (low + high) // 2)
        return high

    def _trial(self, limit: int, stop: int, longest: int) -> tuple[int, int, int]:
        """Return the number of ranges, the bytes of the largest, and the smallest limit that would lengthen a range."""
        cuts = self._cuts(limit, stop)
        ends = self._ends[cuts]
        largest = int((ends[1:] - ends[:-1]).max())
        if cuts[-1] == len(self):
            return len(cuts) - 1, largest, longest
        lengthened = self._ends[np.array(cuts[1:]) + 1] - ends[:-1]
        return stop + 1, largest, int(lengthened.min())


def spread_by_count(units: int, ranges: int) -> list[Range]:
    """Return `ranges` ranges over `units` units whose lengths differ by at most one."""
    return [(i * units // ranges, (i + 1) * units // ranges) for i in range(ranges)]


def pack_within(
    row: SizeRow, volume: int, lower: int, upper: int, lower_from: str = "", upper_from: str = ""
) -> tuple[list[Range], str]:
    """Return contiguous ranges of about `volume` bytes, between `lower` and `upper` in number if possible.

    With too few ranges, it takes the largest limit that gives at least `lower`, then the smallest limit that gives the
    same number, which is the most even. With too many, it takes the smallest limit that gives at most `upper`. If no
    limit gives an allowed number, it divides the units by count.

    Also return the reason, a clause; empty if the volume alone decided. `lower_from` and `upper_from` are the origin of
    each bound, for the reason.
    """
    count = row.count(volume, upper)
    if lower <= count <= upper:
        return row.pack(volume), ""
    if count < lower:
        low = min(volume, int(row.sizes.min()))
        limit = row.largest_limit(lower, low, volume)
        if limit >= 0:
            limit = row.smallest_limit(row.count(limit), low, limit)
        reason = f"raised to the minimum parallelism {lower} ({lower_from})"
    else:
        limit = row.smallest_limit(upper, volume, max(row.total, volume))
        reason = f"limited by the maximum parallelism {upper} ({upper_from})"
    if limit >= 0:
        ranges = row.pack(limit)
        if lower <= len(ranges) <= upper:
            return ranges, reason
    number = max(1, min(len(row), upper))
    return spread_by_count(len(row), number), f"{reason}, with about as many partitions in each task"


def pack_exactly(row: SizeRow, number: int) -> list[Range]:
    """Return `number` contiguous ranges of about equal bytes; with fewer units, some are empty: ``(0, 0)``."""
    ranges, _ = pack_within(row, max(row.total, 1), number, number)
    if len(ranges) != number:
        ranges = spread_by_count(len(row), number)
    return [span if span[0] < span[1] else (0, 0) for span in ranges]
