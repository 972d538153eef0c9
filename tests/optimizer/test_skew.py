from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.optimizer.skew import median_size, skew_threshold, split_along_mappers, split_target


@pytest.mark.parametrize(("sizes", "median"), [([3, 1, 2], 2), ([1, 2, 4, 9], 3), ([0, 0], 1), ([1, 2], 1)])
def test_median(sizes: list[int], median: int) -> None:
    assert median_size(sizes) == median


@pytest.mark.parametrize(
    ("sizes", "factor", "absolute", "threshold"),
    [([10, 10, 10], 4.0, 1, 40), ([10, 10, 10], 4.0, 256, 256), ([3], 1.5, 1, 4)],
)
def test_threshold(sizes: list[int], factor: float, absolute: int, threshold: int) -> None:
    assert skew_threshold(sizes, factor, absolute) == threshold


@pytest.mark.parametrize(
    ("sizes", "limit", "volume", "target"), [([10, 20, 900], 100, 5, 15), ([10, 20], 100, 50, 50), ([9], 1, 7, 7)]
)
def test_target(sizes: list[int], limit: int, volume: int, target: int) -> None:
    assert split_target(sizes, limit, volume) == target


@pytest.mark.parametrize(
    ("mappers", "target", "ranges"),
    [
        ([5, 5, 5, 5], 10, [(0, 1), (1, 2), (2, 3), (3, 4)]),  # the target itself is too much
        ([5, 5, 5, 5], 11, [(0, 2), (2, 4)]),
        ([100, 1, 1], 10, [(0, 1), (1, 3)]),
        ([7], 1, [(0, 1)]),
    ],
)
def test_split_along_mappers(mappers: list[int], target: int, ranges: Any) -> None:
    assert split_along_mappers(mappers, target) == ranges


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 100))
def test_slices_cover_every_mapper_once(mappers: Any, target: Any) -> None:
    ranges = split_along_mappers(mappers, target)
    assert [m for start, end in ranges for m in range(start, end)] == list(range(len(mappers)))
