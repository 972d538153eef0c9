"""Ranges of offsets, and cutting them into splits. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.connectors.splits import evenly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Records of one partition.

    Parameters
    ----------
    topic, partition
        Where they are.
    start
        The first offset.
    end
        The offset behind the last.
    seen
        Whether a record right before `end` was seen, so that reading must come that far.
    """

    topic: str
    partition: int
    start: int
    end: int
    seen: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self.topic}-{self.partition} from {self.start} to {self.end} is not a range of offsets")

    @property
    def backlog(self) -> int:
        """How many offsets there are; fewer records, where some were compacted away."""
        return self.end - self.start


def cut_by_backlog(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Return ranges cut so that none holds more than its share of the whole backlog.

    Parameters
    ----------
    ranges
        The ranges, one per partition; empty ones are left out.
    count
        How many tasks there will be. More ranges come back where partitions are smaller than a share.
    """
    total = sum(one.backlog for one in ranges)
    share = max(1, math.ceil(total / max(count, 1)))
    found = []
    for one in ranges:
        pieces = math.ceil(one.backlog / share)
        edges = [one.start + one.backlog * i // pieces for i in range(pieces)] + [one.end] if pieces else []
        found += [
            OffsetRange(one.topic, one.partition, low, high, seen=one.seen and high == one.end)
            for low, high in pairwise(edges)
        ]
    return found


def tasks_for(ranges: Sequence[OffsetRange], record_bytes: int, volume: int, upper_bound: int) -> int:
    """Return how many tasks a backlog makes: at least 1, at most the upper bound."""
    total = sum(one.backlog for one in ranges)
    return max(1, min(upper_bound, math.ceil(total * record_bytes / volume)))


def shared_out(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Return what each of at most so many tasks reads: about equal backlogs, hot partitions cut into several ranges."""
    cut = cut_by_backlog(ranges, tasks)
    groups = evenly([one.backlog for one in cut], tasks)
    return [[cut[index] for index in group] for group in groups]


def part_of(waiting: Mapping[tuple[str, int], int], most: int) -> dict[tuple[str, int], int]:
    """Return how much of each partition's backlog to read, in all at most so many.

    Each gets one record first, or it would wait for as long as another one is much larger. The rest is by share, and
    what is left by rounding goes to the partitions that lost most by it.
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    first = {place: min(count, 1) for place, count in waiting.items()}
    if sum(first.values()) > most:
        first = dict.fromkeys(waiting, 0)
    given = sum(first.values())
    part = (most - given) / (total - given)
    exact = {place: first[place] + (count - first[place]) * part for place, count in waiting.items()}
    found = {place: int(share) for place, share in exact.items()}
    for place in sorted(exact, key=lambda one: found[one] - exact[one])[: most - sum(found.values())]:
        found[place] += 1
    return found
