from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.splits import count_splits, evenly, split_size_for, why_not_more, worth_opening

MB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "can_split", "split", "count"),
    [
        ([100 * MB], True, 16 * MB, 7),
        ([100 * MB], False, 16 * MB, 1),
        ([1 * MB] * 8, True, 16 * MB, 2),  # opening a file counts as 4 MB
        ([], True, 16 * MB, 0),
        ([0, 0], True, 16 * MB, 0),
        ([32 * MB, 1], True, 16 * MB, 3),
    ],
)
def test_count_splits(sizes: Any, can_split: bool, split: Any, count: int) -> None:
    assert count_splits(sizes, [can_split] * len(sizes), split) == count


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.integers(1, 40), st.integers(0, 1000))
def test_the_split_size_gives_as_many_as_wanted_or_the_most_below(sizes: Any, wanted: Any, open_cost: Any) -> None:
    split = split_size_for(sizes, [True] * len(sizes), wanted, open_cost)
    count = count_splits(sizes, [True] * len(sizes), split, open_cost)
    assert 1 <= count <= wanted
    if len(sizes) == 1:
        assert count == min(wanted, sizes[0]) or sizes[0] < wanted**2  # few bytes cannot be dealt out evenly


def test_files_that_cannot_be_cut() -> None:
    assert count_splits([50, 50], [False] * 2, split_size_for([50, 50], [False] * 2, 9, 0), 0) == 2


@pytest.mark.parametrize(
    ("fine", "coarse", "cores", "expected"),
    [(30, 8, 2, 8), (30, 8, 4, 16), (30, 8, 100, 30), (3, 1, 2, 3), (300, 75, 2, 75), (30, 8, None, 30)],
)
def test_small_splits_only_while_they_keep_cores_busy(fine: int, coarse: int, cores: int | None, expected: int) -> None:
    assert worth_opening(fine, coarse, cores) == expected


@pytest.mark.parametrize(
    ("fine", "coarse", "cores", "expected"),
    [
        (30, 8, 4, "16 splits instead of 30, as 4 for each of 4 cores are Penstock's default"),
        (300, 75, 2, "75 large splits instead of 300, as more than 4 for each of 2 cores only cost time"),
        (3, 1, 2, ""),
        (30, 8, None, ""),
    ],
)
def test_why_there_are_fewer_splits(fine: int, coarse: int, cores: int | None, expected: str) -> None:
    assert why_not_more(fine, coarse, cores) == expected


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ([], 3, []),
        ([5, 5], 3, [[0], [1]]),
        ([9, 1, 1, 1, 8], 2, [[0, 2], [1, 3, 4]]),
        ([3, 3, 3], 1, [[0, 1, 2]]),
    ],
)
def test_dealing_splits_to_tasks(sizes: list[int], tasks: int, expected: Any) -> None:
    assert evenly(sizes, tasks) == expected


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 10))
def test_every_split_is_dealt_once_and_evenly(sizes: Any, tasks: Any) -> None:
    dealt = evenly(sizes, tasks)
    assert sorted(place for group in dealt for place in group) == list(range(len(sizes)))
    assert len(dealt) <= tasks
    held = [sum(sizes[place] for place in group) for group in dealt]
    assert not held or max(held) <= sum(sizes) / tasks + max(sizes)
