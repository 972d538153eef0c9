"""Ranges of offsets, and their division into splits. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.connectors.core.splits import evenly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """A range of records of a partition, from the first offset to the last offset + 1.

    `seen` says whether the record before `end` was seen, so that reading must reach it.
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
        """The number of offsets; compacted topics have fewer records."""
        return self.end - self.start


def split_by_backlog(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Split the ranges of partitions so that none exceeds an equal share, for `count` tasks, of the total backlog.

    Empty ranges are left out. The result has more ranges than `count` if some partitions are smaller than a share.
    """
    total = sum(partition.backlog for partition in ranges)
    share = max(1, math.ceil(total / max(count, 1)))
    splits = []
    for whole in ranges:
        parts = math.ceil(whole.backlog / share)
        edges = [whole.start + whole.backlog * i // parts for i in range(parts)] + [whole.end] if parts else []
        splits += [
            OffsetRange(whole.topic, whole.partition, low, high, seen=whole.seen and high == whole.end)
            for low, high in pairwise(edges)
        ]
    return splits


def tasks_for(ranges: Sequence[OffsetRange], record_bytes: int, volume: int, upper_bound: int) -> int:
    """Return the number of tasks for a backlog at a volume (bytes) per task: at least 1, at most the upper bound."""
    total = sum(partition.backlog for partition in ranges)
    return max(1, min(upper_bound, math.ceil(total * record_bytes / volume)))


def assign_ranges(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Distribute ranges over at most `tasks` tasks with about equal backlogs; splits hot partitions."""
    splits = split_by_backlog(ranges, tasks)
    groups = evenly([split.backlog for split in splits], tasks)
    return [[splits[index] for index in group] for group in groups]


def allocate_records(waiting: Mapping[tuple[str, int], int], most: int) -> dict[tuple[str, int], int]:
    """Divide at most `most` records among the backlogs of partitions.

    Each partition gets a record first, so that it does not starve beside a much larger one. The rest is proportional
    to the backlogs, rounded by the largest remainder method.
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    first = {partition: min(count, 1) for partition, count in waiting.items()}
    if sum(first.values()) > most:
        first = dict.fromkeys(waiting, 0)
    reserved = sum(first.values())
    fraction = (most - reserved) / (total - reserved)
    exact = {
        partition: first[partition] + (count - first[partition]) * fraction for partition, count in waiting.items()
    }
    records = {partition: int(share) for partition, share in exact.items()}
    by_remainder = sorted(exact, key=lambda partition: records[partition] - exact[partition])
    for partition in by_remainder[: most - sum(records.values())]:
        records[partition] += 1
    return records
