"""In how many pieces partial results are merged, and what is won."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.optimizer.merging import cut, kept_of_more, most_times_faster, piece_count, times_faster, tried


@pytest.mark.parametrize(
    ("tasks", "cores", "pieces", "faster"),
    [
        (0, 8, 1, None),
        (1, 8, 1, 0.5),
        (12, 1, 1, 12 / 13),  # all in one task, and then once more
        (12, 2, 2, 1.5),
        (9, 8, 3, 1.5),
        (64, 8, 8, 4.0),
        (1000, 64, 31, 15.8),
    ],
)
def test_pieces(tasks: int, cores: int, pieces: int, faster: float | None) -> None:
    assert piece_count(tasks, cores) == pieces
    assert faster is None or most_times_faster(tasks, cores) == pytest.approx(faster, rel=0.01)


@given(st.integers(1, 5000), st.integers(1, 100))
def test_no_other_number_of_pieces_is_better(tasks: int, cores: int) -> None:
    best = max(times_faster(pieces, pieces / tasks) for pieces in range(1, cores + 1))
    assert most_times_faster(tasks, cores) == pytest.approx(best, rel=0.15)  # a whole number below the square root


@pytest.mark.parametrize(
    ("sizes", "pieces", "expected"),
    [
        ([10] * 4, 2, [(0, 2), (2, 4)]),
        ([10] * 5, 3, [(0, 2), (2, 4), (4, 5)]),
        ([100, 1, 1, 1], 2, [(0, 1), (1, 4)]),
        ([1, 1, 1, 100], 3, [(0, 4)]),
        ([0, 0, 5, 0], 2, [(0, 4)]),
        ([5], 3, [(0, 1)]),
    ],
)
def test_cut(sizes: list[int], pieces: int, expected: list[tuple[int, int]]) -> None:
    assert cut(sizes, pieces) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60).filter(any), st.integers(1, 20))
def test_pieces_have_each_task_once_and_no_more_than_their_share_and_one(sizes: list[int], pieces: int) -> None:
    ranges = cut(sizes, pieces)
    assert 1 <= len(ranges) <= pieces
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(sizes)
    assert all(one[1] == following[0] for one, following in pairwise(ranges))
    parts = [sum(sizes[start:end]) for start, end in ranges]
    assert all(parts)
    assert max(parts) <= sum(sizes) / pieces + max(sizes)


@pytest.mark.parametrize(
    ("kept", "few", "many", "expected"),
    [
        (1 / 2, 2, 10, 1 / 10),
        (1 / 5, 5, 20, 1 / 20),
        (1.0, 2, 10, 1.0),
        (1.1, 2, 10, 1.0),  # compressed worse than before
        (0.75, 2, 4, 0.47),  # each has half of the values
    ],
)
def test_what_is_left_of_more(kept: float, few: int, many: int, expected: float) -> None:
    assert kept_of_more(kept, few, many) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("tasks", "expected"), [(2, 2), (12, 2), (40, 5), (1000, 125)])
def test_an_eighth_is_tried(tasks: int, expected: int) -> None:
    assert tried(tasks) == expected
