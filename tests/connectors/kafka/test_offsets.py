"""Splits of backlogs: examples, and properties checked by hypothesis."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.offsets import OffsetRange, allocate_records, assign_ranges, split_by_backlog, tasks_for


def offset_range(partition: Any, start: Any, end: Any, **options: Any) -> Any:
    return OffsetRange("t", partition, start, end, **options)


@pytest.mark.parametrize(
    ("ranges", "count", "expected"),
    [
        ([], 3, []),
        ([offset_range(0, 5, 5)], 3, []),
        ([offset_range(0, 0, 9)], 3, [offset_range(0, 0, 3), offset_range(0, 3, 6), offset_range(0, 6, 9)]),
        (
            [offset_range(0, 0, 90), offset_range(1, 0, 5), offset_range(2, 0, 5)],
            2,
            [offset_range(0, 0, 45), offset_range(0, 45, 90), offset_range(1, 0, 5), offset_range(2, 0, 5)],
        ),
        (
            [offset_range(0, 10, 12, is_last_seen=True)],
            2,
            [offset_range(0, 10, 11), offset_range(0, 11, 12, is_last_seen=True)],
        ),
        ([offset_range(0, 0, 2)], 8, [offset_range(0, 0, 1), offset_range(0, 1, 2)]),
    ],
)
def test_ranges_are_split_evenly(ranges: Any, count: int, expected: Any) -> None:
    assert split_by_backlog(ranges, count) == expected


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10_000)), max_size=8), st.integers(1, 20))
def test_splits_cover_each_offset_once_with_at_most_an_even_share(starts_and_lengths: Any, count: Any) -> None:
    ranges = [
        offset_range(partition, start, start + length) for partition, (start, length) in enumerate(starts_and_lengths)
    ]
    splits = split_by_backlog(ranges, count)
    for whole in ranges:
        parts = sorted(split for split in splits if split.partition == whole.partition)
        edges = [(part.start, part.end) for part in parts]
        assert sum(part.backlog for part in parts) == whole.backlog
        assert all(low[1] == high[0] for low, high in itertools.pairwise(edges))
        assert not parts or (parts[0].start, parts[-1].end) == (whole.start, whole.end)
    total = sum(whole.backlog for whole in ranges)
    assert all(0 < split.backlog <= -(-total // count) for split in splits)


@pytest.mark.parametrize(
    ("backlog", "bytes_each", "volume", "bound", "expected"),
    [(0, 10, 100, 8, 1), (95, 10, 100, 8, 8), (25, 10, 100, 8, 3)],
)
def test_the_number_of_tasks_follows_from_bytes_and_bound(
    backlog: int, bytes_each: int, volume: int, bound: int, expected: int
) -> None:
    assert tasks_for([offset_range(0, 0, backlog)], bytes_each, volume, bound) == expected


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_negative_and_reversed_ranges_are_errors(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="is not a range of offsets"):
        offset_range(0, start, end)


@given(st.lists(st.integers(0, 10_000), max_size=8), st.integers(1, 20))
def test_tasks_get_similar_shares(lengths: Any, tasks: Any) -> None:
    ranges = [offset_range(partition, 0, length) for partition, length in enumerate(lengths)]
    assigned = assign_ranges(ranges, tasks)
    total = sum(lengths)
    assert sorted(part for task in assigned for part in task) == sorted(split_by_backlog(ranges, tasks))
    assert len(assigned) <= tasks
    assert all(sum(part.backlog for part in task) <= 2 * -(-total // tasks) for task in assigned)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.integers(1, 20_000))
def test_a_limit_is_allocated_in_proportion_to_backlogs(lengths: Any, limit: Any) -> None:
    backlogs = {("t", partition): length for partition, length in enumerate(lengths)}
    allocated = allocate_records(backlogs, limit)
    assert sum(allocated.values()) == min(limit, sum(lengths))
    assert all(0 <= allocated[partition] <= backlogs[partition] for partition in backlogs)
    share = min(1, limit / max(sum(lengths), 1))
    non_empty = sum(length > 0 for length in lengths)
    assert all(abs(allocated[partition] - backlogs[partition] * share) <= max(non_empty, 1) for partition in backlogs)
    if limit >= non_empty:
        assert all(allocated[partition] > 0 for partition in backlogs if backlogs[partition]), "no partition starves"


@pytest.mark.parametrize(
    ("lengths", "limit", "expected"),
    [
        ([1_000_000, 1], 1_000, [999, 1]),
        ([1_000_000, 1, 0, 3], 3, [1, 1, 0, 1]),
        ([1_000_000, 1, 1], 2, [2, 0, 0]),
        ([300, 100], 100, [75, 25]),
        ([3, 1], 9, [3, 1]),
    ],
)
def test_small_partitions_do_not_wait_for_hot_partitions(lengths: list[int], limit: int, expected: list[int]) -> None:
    backlogs = {("t", partition): length for partition, length in enumerate(lengths)}
    assert list(allocate_records(backlogs, limit).values()) == expected
