"""Division of exchanges by file size: tables of cases, and invariants checked by hypothesis."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sizing.file_sizes import cut_for_files, even_runs, slot_count


@pytest.mark.parametrize(
    ("weights", "count", "expected"),
    [
        ([1, 1, 1, 1], 2, [(0, 2), (2, 4)]),
        ([1, 1, 1, 1], 1, [(0, 4)]),
        ([1, 1], 5, [(0, 1), (1, 2)]),
        ([9, 1, 1, 1], 2, [(0, 1), (1, 4)]),
        ([1, 1, 1, 9], 2, [(0, 3), (3, 4)]),
        ([0, 0, 0], 2, [(0, 1), (1, 3)]),
        ([5], 3, [(0, 1)]),
    ],
)
def test_even_runs(weights: list[int], count: int, expected: Any) -> None:
    assert even_runs(weights, count) == expected


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 60))
def test_runs_cover_everything_once(weights: Any, count: Any) -> None:
    runs = even_runs(weights, count)
    assert runs[0][0] == 0
    assert runs[-1][1] == len(weights)
    assert all(low < high for low, high in runs)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(runs))
    assert len(runs) == min(count, len(weights))


@pytest.mark.parametrize(
    ("sizes", "target", "expected"),
    [
        ([], 10, 1),
        ([0, 0], 10, 1),
        ([5, 5, 5, 5], 10, 2),
        ([1] * 8, 100, 1),
        ([2, 100, 2], 10, 1 + 10 + 1),
        ([12, 12], 10, 2),
        ([13], 10, 1),
        ([481], 10, 20),  # written by 20 tasks, two and a half files each
    ],
)
def test_number_of_tasks(sizes: Any, target: int, expected: Any) -> None:
    assert len(cut_for_files(sizes, lambda index: [sizes[index] / 20] * 20, target)) == expected


@given(st.lists(st.integers(0, 500), min_size=1, max_size=30), st.integers(10, 100))
def test_every_byte_is_read_once_and_files_have_about_the_target_size(sizes: Any, target: Any) -> None:
    writers = 100
    tasks = cut_for_files(sizes, lambda index: [sizes[index] / writers] * writers, target)
    read = [0.0] * len(sizes)
    for (task,) in tasks:
        low, high = task.subpartitions
        part = 1.0 if task.mappers is None else (task.mappers[1] - task.mappers[0]) / writers
        assert task.mappers is None or high == low + 1
        for index in range(low, high):
            read[index] += part
        disk = sum(sizes[low:high]) * part
        assert disk <= 2.6 * target  # neighbours just under the limit cannot be divided better
        if task.mappers is not None and sum(sizes[low:high]) / writers <= target / 4:  # indivisible parts are small
            assert 0.6 * target <= disk <= 1.5 * target
    assert all(abs(part - 1) < 1e-9 for part in read)


@pytest.mark.parametrize(
    ("written", "target", "writers", "expected"),
    [
        (0, 16, 4, 1),
        (16, 16, 4, 1),
        (160, 16, 4, 10),
        (160, 16, 40, 1),
        (160, 16, 0, 32),  # unknown number of writers
        (10**12, 16, 1, 32),
    ],
)
def test_number_of_slots(written: Any, target: int, writers: int, expected: int) -> None:
    assert slot_count(written, target, writers) == expected


@pytest.mark.parametrize(
    ("sizes", "slots", "expected"),
    [
        ([1, 1, 1, 1], 2, [[((0, 4), None)]]),
        ([5, 5, 5, 5], 2, [[((0, 2), None)], [((2, 4), None)]]),
        # divided by slots
        ([5, 5, 5, 5, 1, 1, 1, 1], 4, [[((0, 2), None)], [((2, 4), None)], [((4, 8), None)]]),
        # a slot that is too large for a file is divided by upstream task
        (
            [20, 20, 1, 1],
            2,
            [[((0, 1), (0, 5))], [((0, 1), (5, 10))], [((1, 2), (0, 5))], [((1, 2), (5, 10))], [((2, 4), None)]],
        ),
        # in the middle of a slot, and across its end
        ([15, 15], 2, [[((0, 1), (0, 7))], [((0, 1), (7, 10)), ((1, 2), (0, 3))], [((1, 2), (3, 10))]]),
        (
            [8, 8, 8, 8, 8],
            5,
            [
                [((0, 1), None), ((1, 2), (0, 2))],
                [((1, 2), (2, 10)), ((2, 3), (0, 5))],
                [((2, 3), (5, 10)), ((3, 4), (0, 7))],
                [((3, 4), (7, 10)), ((4, 5), None)],
            ],
        ),
        # the end of a slot, a whole slot, the start of another
        (
            [7, 7, 7, 7],
            4,
            [
                [((0, 1), None), ((1, 2), (0, 3))],
                [((1, 2), (3, 10)), ((2, 3), (0, 7))],
                [((2, 3), (7, 10)), ((3, 4), None)],
            ],
        ),
        (
            [20, 4, 16],
            3,
            [
                [((0, 1), (0, 5))],
                [((0, 1), (5, 10))],
                [((1, 2), None), ((2, 3), (0, 4))],
                [((2, 3), (4, 10))],
            ],
        ),
    ],
)
def test_slots(sizes: list[int], slots: int, expected: Any) -> None:
    tasks = cut_for_files(sizes, lambda index: [sizes[index] / 10] * 10, 10, slots)
    assert [[(part.subpartitions, part.mappers) for part in task] for task in tasks] == expected


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=8),
    st.integers(1, 32),
    st.integers(10, 100),
    st.integers(1, 40),
    st.randoms(),
)
def test_every_cell_of_slots_is_read_once(totals: Any, slots: Any, target: Any, writers: Any, random: Any) -> None:
    sizes = [total / slots * random.choice([1, 1, 1, 1.3]) for total in totals for _ in range(slots)]
    tasks = cut_for_files(sizes, lambda index: [sizes[index] / writers] * writers, target, slots)
    read = [0] * (len(sizes) * writers)
    for part in (part for task in tasks for part in task):
        low, high = part.subpartitions
        first, last = part.mappers or (0, writers)
        assert part.mappers is None or high == low + 1
        for index in range(low, high):
            for mapper in range(first, last):
                read[index * writers + mapper] += 1
    assert set(read) == {1}
    assert max(len(task) for task in tasks) <= 3
