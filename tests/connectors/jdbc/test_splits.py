"""Splits of tables: examples, and properties checked by hypothesis."""

from __future__ import annotations

import bisect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.jdbc.splits import count_splits, key_conditions, page_bounds, weighted_bounds


@pytest.mark.parametrize(
    ("rows", "width", "volume", "bound", "expected"),
    [(0, 10, 100, 8, 1), (10, 10, 100, 8, 1), (11, 10, 100, 8, 2), (1e6, 100, 100, 8, 8), (0.5, 1, 100, 8, 1)],
)
def test_the_number_of_splits_follows_from_bytes_and_bound(
    rows: float, width: int, volume: int, bound: int, expected: int
) -> None:
    assert count_splits(rows, width, volume, bound) == expected


@pytest.mark.parametrize(
    ("pages", "count", "expected"),
    [
        ([100], 1, []),
        ([100], 4, [25, 50, 75]),
        ([0], 4, []),
        ([], 4, []),
        ([2], 4, [1]),
        ([100, 300], 4, [50, 100, 200]),
        ([0, 100], 2, [50]),
        ([10, 10, 10], 3, [3, 7]),
    ],
)
def test_page_bounds_divide_pages_evenly(pages: list[int], count: int, expected: list[int]) -> None:
    assert page_bounds(pages, count) == expected


@given(st.lists(st.integers(0, 10_000), max_size=6), st.integers(1, 40))
def test_page_ranges_are_even(pages: Any, count: Any) -> None:
    bounds = page_bounds(pages, count)
    assert bounds == sorted(set(bounds))
    assert len(bounds) < count
    pages_per_split = [
        sum(min(size, high) - min(size, low) for size in pages)
        for low, high in zip([0, *bounds], [*bounds, 10**9], strict=True)
    ]
    assert sum(pages_per_split) == sum(pages)
    assert max(pages_per_split) <= sum(pages) / count + 2 * max(len(pages), 1)


def test_key_conditions_cover_all_keys() -> None:
    assert key_conditions("k", [], nullable=True) == [None]
    assert key_conditions("k", ["3"], nullable=False) == ["k < 3", "k >= 3"]
    assert key_conditions("k", ["3", "7"], nullable=True) == ["k < 3 OR k IS NULL", "k >= 3 AND k < 7", "k >= 7"]


@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        ([("a", 1.0)], 3, []),
        ([(c, 1.0) for c in "abcdef"], 3, ["c", "e"]),
        ([(c, 1.0) for c in "abcdef"], 1, []),
        ([("a", 1.0), ("hot", 90.0), ("z", 1.0)], 3, ["hot", "z"]),
        ([("hot", 90.0), *((c, 1.0) for c in "uvwxyz")], 10, ["u"]),
    ],
)
def test_weighted_bounds_isolate_hot_keys(values: Any, count: int, expected: list[str]) -> None:
    assert weighted_bounds(values, count) == expected


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.integers(1, 20))
def test_ranges_between_weighted_bounds_have_similar_weight(weights: Any, count: Any) -> None:
    values = [(f"{i:03}", weight) for i, weight in enumerate(weights)]
    bounds = weighted_bounds(values, count)
    assert bounds == sorted(set(bounds))
    assert len(bounds) < count
    weight_per_split = [0.0] * (len(bounds) + 1)
    for value, weight in values:
        weight_per_split[bisect.bisect_right(bounds, value)] += weight
    assert max(weight_per_split) <= sum(weights) / count + 2 * max(weights) + 1e-6
