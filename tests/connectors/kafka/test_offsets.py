"""Cutting backlogs: a table, and hypothesis for what must always hold."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.offsets import OffsetRange, cut_by_backlog, part_of, shared_out, tasks_for


def one(partition: Any, start: Any, end: Any, **more: Any) -> Any:
    return OffsetRange("t", partition, start, end, **more)


@pytest.mark.parametrize(
    ("ranges", "count", "expected"),
    [
        ([], 3, []),
        ([one(0, 5, 5)], 3, []),
        ([one(0, 0, 9)], 3, [one(0, 0, 3), one(0, 3, 6), one(0, 6, 9)]),
        ([one(0, 0, 90), one(1, 0, 5), one(2, 0, 5)], 2, [one(0, 0, 45), one(0, 45, 90), one(1, 0, 5), one(2, 0, 5)]),
        ([one(0, 10, 12, seen=True)], 2, [one(0, 10, 11), one(0, 11, 12, seen=True)]),
        ([one(0, 0, 2)], 8, [one(0, 0, 1), one(0, 1, 2)]),
    ],
)
def test_cuts(ranges: Any, count: int, expected: Any) -> None:
    assert cut_by_backlog(ranges, count) == expected


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10_000)), max_size=8), st.integers(1, 20))
def test_every_offset_once_and_no_share_exceeded(given_ranges: Any, count: Any) -> None:
    ranges = [one(place, start, start + length) for place, (start, length) in enumerate(given_ranges)]
    found = cut_by_backlog(ranges, count)
    for whole in ranges:
        parts = sorted(part for part in found if part.partition == whole.partition)
        edges = [(part.start, part.end) for part in parts]
        assert sum(part.backlog for part in parts) == whole.backlog
        assert all(low[1] == high[0] for low, high in itertools.pairwise(edges))
        assert not parts or (parts[0].start, parts[-1].end) == (whole.start, whole.end)
    total = sum(whole.backlog for whole in ranges)
    assert all(0 < part.backlog <= -(-total // count) for part in found)


@pytest.mark.parametrize(
    ("backlog", "bytes_each", "volume", "bound", "expected"),
    [(0, 10, 100, 8, 1), (95, 10, 100, 8, 8), (25, 10, 100, 8, 3)],
)
def test_number_of_tasks(backlog: int, bytes_each: int, volume: int, bound: int, expected: int) -> None:
    assert tasks_for([one(0, 0, backlog)], bytes_each, volume, bound) == expected


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_bad_ranges(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="is not a range of offsets"):
        one(0, start, end)


@given(st.lists(st.integers(0, 10_000), max_size=8), st.integers(1, 20))
def test_tasks_get_about_equal_shares(lengths: Any, tasks: Any) -> None:
    found = shared_out([one(place, 0, length) for place, length in enumerate(lengths)], tasks)
    total = sum(lengths)
    assert sorted(part for task in found for part in task) == sorted(
        cut_by_backlog([one(place, 0, length) for place, length in enumerate(lengths)], tasks)
    )
    assert len(found) <= tasks
    assert all(sum(part.backlog for part in task) <= 2 * -(-total // tasks) for task in found)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.integers(1, 20_000))
def test_a_part_of_a_backlog(lengths: Any, most: Any) -> None:
    waiting = {("t", place): length for place, length in enumerate(lengths)}
    found = part_of(waiting, most)
    assert sum(found.values()) == min(most, sum(lengths))
    assert all(0 <= found[place] <= waiting[place] for place in waiting)
    share = min(1, most / max(sum(lengths), 1))
    filled = sum(length > 0 for length in lengths)
    assert all(abs(found[place] - waiting[place] * share) <= max(filled, 1) for place in waiting)
    if most >= filled:
        assert all(found[place] > 0 for place in waiting if waiting[place]), "none waits for the others"


@pytest.mark.parametrize(
    ("lengths", "most", "expected"),
    [
        ([1_000_000, 1], 1_000, [999, 1]),
        ([1_000_000, 1, 0, 3], 3, [1, 1, 0, 1]),
        ([1_000_000, 1, 1], 2, [2, 0, 0]),
        ([300, 100], 100, [75, 25]),
        ([3, 1], 9, [3, 1]),
    ],
)
def test_small_partitions_do_not_wait_for_hot_ones(lengths: list[int], most: int, expected: list[int]) -> None:
    waiting = {("t", place): length for place, length in enumerate(lengths)}
    assert list(part_of(waiting, most).values()) == expected
