"""Ranges of offsets, and their division into splits. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.connectors.core.splits import distribute_evenly


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """A range of records of a partition, from the offset `start` (included) to `end` (excluded).

    `is_last_seen` says whether the record before `end` was read to determine `end`; a task must then read it or fail.
    """

    topic: str
    partition: int
    start: int
    end: int
    is_last_seen: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self.topic}-{self.partition} from {self.start} to {self.end} is not a range of offsets")

    @property
    def backlog(self) -> int:
        """The number of offsets; compacted topics have fewer records."""
        return self.end - self.start


def split_by_backlog(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Split the ranges of partitions so that none has more than the total backlog divided by `count`, rounded up.

    Empty ranges are left out. The result may have more ranges than `count`, as each range is of a single partition.
    """
    total = sum(offset_range.backlog for offset_range in ranges)
    share = max(1, math.ceil(total / max(count, 1)))
    splits = []
    for whole in ranges:
        parts = math.ceil(whole.backlog / share)
        bounds = [whole.start + whole.backlog * i // parts for i in range(parts)] + [whole.end] if parts else []
        splits += [
            OffsetRange(whole.topic, whole.partition, low, high, is_last_seen=whole.is_last_seen and high == whole.end)
            for low, high in pairwise(bounds)
        ]
    return splits


def tasks_for(ranges: Sequence[OffsetRange], record_bytes: int, volume: int, upper_bound: int) -> int:
    """Return the number of tasks for records of `record_bytes` each, `volume` bytes per task: 1 to the upper bound."""
    total = sum(offset_range.backlog for offset_range in ranges)
    return max(1, min(upper_bound, math.ceil(total * record_bytes / volume)))


def assign_ranges(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Distribute ranges over at most `tasks` tasks with about equal backlogs; ranges of hot partitions are split."""
    splits = split_by_backlog(ranges, tasks)
    return distribute_evenly(splits, [split.backlog for split in splits], tasks)


def allocate_records(backlogs: Mapping[tuple[str, int], int], maximum: int) -> dict[tuple[str, int], int]:
    """Divide at most `maximum` records among the backlogs of partitions.

    Each partition with a backlog gets at least one record (if `maximum` suffices), so that it does not starve beside a
    much larger partition. The other records are proportional to the backlogs, rounded by the largest remainder method.
    """
    total = sum(backlogs.values())
    if total <= maximum:
        return dict(backlogs)
    minimum = {partition: min(count, 1) for partition, count in backlogs.items()}
    if sum(minimum.values()) > maximum:
        minimum = dict.fromkeys(backlogs, 0)
    reserved = sum(minimum.values())
    fraction = (maximum - reserved) / (total - reserved)
    shares = {
        partition: minimum[partition] + (count - minimum[partition]) * fraction for partition, count in backlogs.items()
    }
    records = {partition: int(share) for partition, share in shares.items()}
    by_remainder = sorted(shares, key=lambda partition: records[partition] - shares[partition])  # the largest first
    for partition in by_remainder[: maximum - sum(records.values())]:
        records[partition] += 1
    return records
