"""Key groups as tables and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as h

from penstock.errors import StateError
from penstock.hashing import hash_row
from penstock.state.key_groups import (
    check_max_parallelism, default_max_parallelism, key_group, key_group_range, operator_index,
)  # fmt: skip


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (171, 256), (172, 512), (20_000, 32768), (32768, 32768)],
)
def test_default_max_parallelism(parallelism, expected):
    assert default_max_parallelism(parallelism) == expected


@given(h.integers(1, 300), h.integers(1, 300))
def test_ranges_cover_all_groups_once_and_evenly(one, other):
    parallelism, number = sorted((one, other))
    ranges = [key_group_range(index, parallelism, number) for index in range(parallelism)]
    assert [group for found in ranges for group in found] == list(range(number))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    for index, found in enumerate(ranges):
        assert all(operator_index(group, parallelism, number) == index for group in found)


@pytest.mark.parametrize("number", [0, -1, 32769])
def test_bounds(number):
    with pytest.raises(StateError, match=f"max parallelism is {number}"):
        check_max_parallelism(number)


def test_a_key_group_is_the_hash_modulo_their_number():
    assert key_group(["k", 7], ["string", "bigint"], 12) == hash_row(["k", 7], ["string", "bigint"]) % 12
