from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sizing.coverage import check_slices
from penstock.sizing.skew_cut import rescaled


@pytest.mark.parametrize(
    ("writers", "subpartitions", "readers", "expected"),
    [
        (4, 4, 2, [((0, 4), (0, 2)), ((0, 4), (2, 4))]),
        (3, 1, 2, [((0, 1), (0, 1)), ((0, 1), (1, 3))]),
        (2, 4, 4, [((0, 2), (0, 1)), ((2, 4), (0, 1)), ((0, 2), (1, 2)), ((2, 4), (1, 2))]),
        (2, 3, 3, [((0, 1), (0, 1)), ((1, 3), (0, 1)), ((0, 3), (1, 2))]),
        (2, 4, 5, [((0, 1), (0, 1)), ((1, 2), (0, 1)), ((2, 4), (0, 1)), ((0, 2), (1, 2)), ((2, 4), (1, 2))]),
        (2, 2, 2, [((0, 2), (0, 1)), ((0, 2), (1, 2))]),
        (1, 1, 3, [((0, 0), None), ((0, 0), None), ((0, 1), (0, 1))]),
    ],
)
def test_slices(writers: int, subpartitions: int, readers: int, expected: Any) -> None:
    assert [(part.subpartitions, part.mappers) for (part,) in rescaled(writers, subpartitions, readers)] == expected


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 60))
def test_everything_is_read_once_by_all_readers(writers: Any, subpartitions: Any, readers: Any) -> None:
    tasks = rescaled(writers, subpartitions, readers)
    assert len(tasks) == readers
    check_slices("v", {"e": tasks}, {"e": [1] * subpartitions}, {"e": writers})
