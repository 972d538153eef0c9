"""Estimates of the distribution of keys, by bisection."""

from __future__ import annotations

import bisect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.jdbc.splits import middle_number, middle_text, weigh_ranges, weighted_bounds


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("0", "10", "5"),
        ("-3", "0", "-2"),
        ("4", "5", None),
        ("4", "4", None),
        ("0.50", "0.60", "0.55"),
        ("0.5", "0.6", None),
    ],
)
def test_the_middle_of_two_numbers_has_their_scale(low: str, high: str, expected: str | None) -> None:
    assert middle_number(low, high) == expected


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_the_middle_of_two_integers_is_between_them(a: Any, b: Any) -> None:
    low, high = sorted((a, b))
    middle = middle_number(str(low), str(high))
    assert (middle is None) == (high - low < 2) or low < int(middle) < high


@given(st.text("0123456789abcxyz", max_size=8), st.text("0123456789abcxyz", max_size=8))
def test_the_middle_of_two_strings_is_between_them(a: Any, b: Any) -> None:
    low, high = sorted((a, b))
    middle = middle_text(low, high)
    if low != high and middle is not None and low < middle < high:
        assert len(middle) <= 24
    if a and b and ord(high[0]) - ord(low[0]) > 1 and low[0] in "abc" and high[0] in "xyz":
        assert low < middle < high


@given(st.lists(st.integers(0, 100_000), min_size=50, max_size=400, unique=True), st.integers(2, 8))
def test_splits_of_a_skewed_key_are_balanced(keys: Any, count: Any) -> None:
    keys = sorted({key**2 // 1000 for key in keys})

    def rows_between(low: Any, high: Any) -> float:
        return float(bisect.bisect_left(keys, int(high)) - bisect.bisect_left(keys, int(low)))

    values = weigh_ranges(str(keys[0]), str(keys[-1] + 1), rows_between, middle_number, 64)
    assert sum(weight for _, weight in values) == len(keys)
    bounds = [int(value) for value in weighted_bounds(values, count)]
    rows_per_split = [0] * (len(bounds) + 1)
    for key in keys:
        rows_per_split[bisect.bisect_right(bounds, key)] += 1
    assert max(rows_per_split) <= 2 * len(keys) / count + 2
