from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sizing.coverage import check_slices
from penstock.sizing.parallelism import Bounds
from penstock.sizing.skew_cut import cut_skewed


@pytest.mark.parametrize(
    ("left", "right", "slices", "expected"),
    [
        # subpartitions 0 to 2 are packed into two tasks; each slice of 3 is joined with the other side's whole subpartition
        (
            [5, 5, 5, 90],
            [1, 1, 1, 1],
            [{3: [(0, 2), (2, 4)]}, {}],
            [((0, 2), None, None), ((2, 3), None, None), ((3, 4), (0, 2), None), ((3, 4), (2, 4), None)],
        ),
        # both sides are split: every slice is joined with every slice
        (
            [90, 5],
            [90, 5],
            [{0: [(0, 1), (1, 2)]}, {0: [(0, 3), (3, 4)]}],
            [
                ((0, 1), (0, 1), (0, 3)),
                ((0, 1), (0, 1), (3, 4)),
                ((0, 1), (1, 2), (0, 3)),
                ((0, 1), (1, 2), (3, 4)),
                ((1, 2), None, None),
            ],
        ),
    ],
)
def test_cut_skewed(left: list[int], right: list[int], slices: Any, expected: Any) -> None:
    tasks = cut_skewed([np.array(left), np.array(right)], slices, Bounds(1, 100, 12))
    assert [(a.subpartitions, a.mappers, b.mappers) for a, b in tasks] == expected
    assert all(a.subpartitions == b.subpartitions for a, b in tasks)


ALTERNATING = [np.array([5, 90] * 5), np.array([1, 1] * 5)]
HALVED = [{index: [(0, 2), (2, 4)] for index in range(1, 10, 2)}, {}]
BOTH = [{1: [(0, 1), (1, 2), (2, 4)]}, {1: [(0, 2), (2, 4)]}]


@pytest.mark.parametrize(
    ("sizes", "slices", "bounds", "parallelism", "expected"),
    [
        (ALTERNATING, HALVED, (1, 100), None, 15),
        # the maximum limits the total number of tasks
        (ALTERNATING, HALVED, (1, 12), None, 12),
        (ALTERNATING, HALVED, (1, 3), None, 3),
        (ALTERNATING, HALVED, (1, 1), None, 1),
        (ALTERNATING, HALVED, (18, 100), None, 18),
        # a fixed number: fewer tasks than slices, equal, more, and more than can be divided
        *((ALTERNATING, HALVED, (1, 100), number, number) for number in (1, 2, 3, 5, 14, 15, 16, 20, 40)),
        *((ALTERNATING, HALVED, (1, 3), number, number) for number in (1, 5, 40)),
        *(
            ([np.array([5, 90, 5, 5]), np.array([1, 40, 1, 1])], BOTH, (1, 100), number, number)
            for number in range(1, 12)
        ),
        (ALTERNATING, [{}, {}], (1, 100), 7, 7),
        ([np.zeros(4)] * 2, [{1: [(0, 2), (2, 4)]}, {}], (1, 100), 3, 3),
    ],
)
def test_number_of_tasks(sizes: Any, slices: Any, bounds: Any, parallelism: Any, expected: Any) -> None:
    tasks = cut_skewed(sizes, slices, Bounds(bounds[0], bounds[1], 12), parallelism)
    assert len(tasks) == expected
    check(tasks, sizes)


def test_few_tasks_split_the_largest_subpartition() -> None:
    tasks = cut_skewed(
        [np.array([5, 900, 5, 60])], [{1: [(0, 1), (1, 2), (2, 3)], 3: [(0, 2), (2, 3)]}], Bounds(1, 100, 9), 5
    )
    slices = [(part.subpartitions, part.mappers) for (part,) in tasks]
    assert slices == [((0, 1), None), ((1, 2), (0, 1)), ((1, 2), (1, 2)), ((1, 2), (2, 3)), ((2, 4), None)]


def check(tasks: Any, sizes: Any) -> None:
    """Check that every pair of slices is read once, as a join requires."""
    edges = {f"e{number}": [task[number : number + 1] for task in tasks] for number in range(len(sizes))}
    written = {f"e{number}": [1] * len(row) for number, row in enumerate(sizes)}
    check_slices("join", edges, written, dict.fromkeys(edges, 4))
    assert all(a.subpartitions == b.subpartitions for a, *others in tasks for b in others)


cuts = st.sets(st.integers(1, 3)).map(
    lambda at: [(a, b) for a, b in zip([0, *sorted(at)], [*sorted(at), 4], strict=True)]
)
skew = st.dictionaries(st.integers(0, 7), cuts, max_size=4)


@given(
    st.lists(st.lists(st.integers(0, 90), min_size=8, max_size=8), min_size=2, max_size=2),
    skew,
    skew,
    st.integers(1, 60),
    st.integers(1, 20),
    st.integers(0, 20),
    st.integers(0, 30),
)
def test_everything_is_read_once_with_any_parallelism(
    rows: Any, left: Any, right: Any, volume: Any, low: Any, more: Any, parallelism: Any
) -> None:
    sizes = [np.array(row) for row in rows]
    tasks = cut_skewed(sizes, [left, right], Bounds(low, low + more, volume), parallelism or None)
    check(tasks, sizes)
    assert (parallelism or low) <= len(tasks) <= (parallelism or low + more)
