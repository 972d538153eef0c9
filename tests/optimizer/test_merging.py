"""The number of chunks in which partial results are merged, and the speedup."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.optimizer.skewed_aggregation import (
    extrapolate_fraction,
    max_speedup,
    merge_chunk_count,
    sample_count,
    speedup,
    split_evenly,
)


@pytest.mark.parametrize(
    ("tasks", "cores", "chunks", "expected"),
    [
        (0, 8, 1, None),
        (1, 8, 1, 0.5),
        (12, 1, 1, 12 / 13),  # a single chunk is merged twice
        (12, 2, 2, 1.5),
        (9, 8, 3, 1.5),
        (64, 8, 8, 4.0),
        (1000, 64, 31, 15.8),
    ],
)
def test_chunks(tasks: int, cores: int, chunks: int, expected: float | None) -> None:
    assert merge_chunk_count(tasks, cores) == chunks
    assert expected is None or max_speedup(tasks, cores) == pytest.approx(expected, rel=0.01)


@given(st.integers(1, 5000), st.integers(1, 100))
def test_no_other_number_of_chunks_is_better(tasks: int, cores: int) -> None:
    best = max(speedup(chunks, chunks / tasks) for chunks in range(1, cores + 1))
    assert max_speedup(tasks, cores) == pytest.approx(best, rel=0.15)  # the square root is rounded down


@pytest.mark.parametrize(
    ("sizes", "chunks", "expected"),
    [
        ([10] * 4, 2, [(0, 2), (2, 4)]),
        ([10] * 5, 3, [(0, 2), (2, 4), (4, 5)]),
        ([100, 1, 1, 1], 2, [(0, 1), (1, 4)]),
        ([1, 1, 1, 100], 3, [(0, 4)]),
        ([0, 0, 5, 0], 2, [(0, 4)]),
        ([5], 3, [(0, 1)]),
    ],
)
def test_split_evenly(sizes: list[int], chunks: int, expected: list[tuple[int, int]]) -> None:
    assert split_evenly(sizes, chunks) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60).filter(any), st.integers(1, 20))
def test_chunks_cover_each_task_once_and_are_about_even(sizes: list[int], chunks: int) -> None:
    ranges = split_evenly(sizes, chunks)
    assert 1 <= len(ranges) <= chunks
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(sizes)
    assert all(previous[1] == following[0] for previous, following in pairwise(ranges))
    parts = [sum(sizes[start:end]) for start, end in ranges]
    assert all(parts)
    assert max(parts) <= sum(sizes) / chunks + max(sizes)


@pytest.mark.parametrize(
    ("measured", "sample", "total", "expected"),
    [
        (1 / 2, 2, 10, 1 / 10),
        (1 / 5, 5, 20, 1 / 20),
        (1.0, 2, 10, 1.0),
        (1.1, 2, 10, 1.0),  # the merged result compresses worse
        (0.75, 2, 4, 0.47),  # each holds half of the values
    ],
)
def test_extrapolate_fraction(measured: float, sample: int, total: int, expected: float) -> None:
    assert extrapolate_fraction(measured, sample, total) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("tasks", "expected"), [(2, 2), (12, 2), (40, 5), (1000, 125)])
def test_the_sample_is_an_eighth(tasks: int, expected: int) -> None:
    assert sample_count(tasks) == expected
