from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.sizing.packing import SizeList, pack_within, spread_by_count

sizes = st.lists(st.one_of(st.just(0), st.integers(0, 100)), min_size=1, max_size=30)


def greedy(row: Any, limit: Any) -> Any:
    """Return the ranges of the specified rule: add the next size while it fits; zero and the first always fit."""
    ranges, start, filled = [], 0, row[0]
    for i, size in enumerate(row[1:], 1):
        if size == 0 or filled + size <= limit:
            filled += size
        else:
            ranges.append((start, i))
            start, filled = i, size
    return [*ranges, (start, len(row))]


@pytest.mark.parametrize(
    ("row", "limit", "ranges"),
    [
        ([10, 15, 13, 12, 1, 10, 8, 20, 12, 17], 20, [(0, 1), (1, 2), (2, 3), (3, 5), (5, 7), (7, 8), (8, 9), (9, 10)]),
        ([5], 1, [(0, 1)]),
        ([0, 0, 0], 0, [(0, 3)]),
        ([50, 0, 0, 1], 10, [(0, 3), (3, 4)]),
        ([10, 10], 20, [(0, 2)]),
    ],
)
def test_pack(row: list[int], limit: int, ranges: Any) -> None:
    assert SizeList(row).pack(limit) == ranges


@given(sizes, st.integers(0, 400))
def test_pack_is_greedy(row: Any, limit: Any) -> None:
    packed = SizeList(row)
    assert packed.pack(limit) == greedy(row, limit)
    assert packed.count(limit) == len(greedy(row, limit))


@given(sizes, st.integers(1, 12), st.integers(0, 60))
@example([0, 2, 3], 2, 0)
def test_smallest_limit(row: Any, at_most: Any, low: Any) -> None:
    packed = SizeList(row)
    high = max(low, packed.total)
    expected = next((limit for limit in range(low, high + 1) if len(greedy(row, limit)) <= at_most), -1)
    assert packed.smallest_limit(at_most, low, high) == expected


@given(sizes, st.integers(1, 12), st.integers(0, 60), st.integers(0, 200))
def test_largest_limit(row: Any, at_least: Any, low: Any, more: Any) -> None:
    expected = next((n for n in range(low + more, low - 1, -1) if len(greedy(row, n)) >= at_least), -1)
    assert SizeList(row).largest_limit(at_least, low, low + more) == expected


@given(sizes, st.integers(1, 200), st.integers(1, 10), st.integers(0, 10))
def test_pack_within_covers_everything_once_within_the_bounds(row: Any, volume: Any, lower: Any, more: Any) -> None:
    ranges, reason = pack_within(SizeList(row), volume, lower, lower + more)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(row)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges))
    assert len(ranges) <= lower + more
    assert len(ranges) >= min(lower, len(row))
    assert bool(reason) == (not lower <= len(greedy(row, volume)) <= lower + more)


@pytest.mark.parametrize(
    ("units", "ranges", "expected"), [(10, 3, [(0, 3), (3, 6), (6, 10)]), (2, 2, [(0, 1), (1, 2)])]
)
def test_spread_by_count(units: int, ranges: int, expected: Any) -> None:
    assert spread_by_count(units, ranges) == expected


@pytest.mark.parametrize("row", [[], [-1]])
def test_bad_rows(row: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one size"):
        SizeList(row)
