from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.core.splits import choose_split_count, count_splits, distribute_evenly, split_size_for

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
def test_the_number_of_splits_follows_from_file_sizes(sizes: Any, can_split: bool, split: Any, count: int) -> None:
    assert count_splits(sizes, [can_split] * len(sizes), split) == count


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.integers(1, 40), st.integers(0, 1000))
def test_the_split_size_gives_at_most_the_requested_number_of_splits(
    sizes: Any, requested: Any, open_cost: Any
) -> None:
    split = split_size_for(sizes, [True] * len(sizes), requested, open_cost)
    count = count_splits(sizes, [True] * len(sizes), split, open_cost)
    assert 1 <= count <= requested
    if len(sizes) == 1:
        assert count == min(requested, sizes[0]) or sizes[0] < requested**2  # few bytes cannot be divided evenly


def test_unsplittable_files_are_a_split_each() -> None:
    assert count_splits([50, 50], [False] * 2, split_size_for([50, 50], [False] * 2, 9, 0), 0) == 2


@pytest.mark.parametrize(
    ("fine", "coarse", "cores", "expected"),
    [(30, 8, 2, 8), (30, 8, 4, 16), (30, 8, 100, 30), (3, 1, 2, 3), (300, 75, 2, 75), (30, 8, None, 30)],
)
def test_splits_are_small_only_as_long_as_cores_would_be_idle(
    fine: int, coarse: int, cores: int | None, expected: int
) -> None:
    number, _ = choose_split_count(fine, coarse, cores)
    assert number == expected


@pytest.mark.parametrize(
    ("fine", "coarse", "cores", "expected"),
    [
        (30, 8, 4, "16 splits instead of 30, as 4 for each of 4 cores are Penstock's default"),
        (300, 75, 2, "75 large splits instead of 300, as these are already at least 4 for each of 2 cores"),
        (3, 1, 2, ""),
        (30, 8, None, ""),
    ],
)
def test_fewer_splits_have_a_reason(fine: int, coarse: int, cores: int | None, expected: str) -> None:
    _, reason = choose_split_count(fine, coarse, cores)
    assert reason == expected


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ([], 3, []),
        ([5, 5], 3, [[0], [1]]),
        ([9, 1, 1, 1, 8], 2, [[0, 2], [1, 3, 4]]),
        ([3, 3, 3], 1, [[0, 1, 2]]),
    ],
)
def test_splits_are_assigned_to_tasks_by_size(sizes: list[int], tasks: int, expected: Any) -> None:
    assert distribute_evenly(range(len(sizes)), sizes, tasks) == expected


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 10))
def test_each_split_is_assigned_once_and_evenly(sizes: Any, tasks: Any) -> None:
    groups = distribute_evenly(range(len(sizes)), sizes, tasks)
    assert sorted(index for group in groups for index in group) == list(range(len(sizes)))
    assert len(groups) <= tasks
    totals = [sum(sizes[index] for index in group) for group in groups]
    assert not totals or max(totals) <= sum(sizes) / tasks + max(sizes)
