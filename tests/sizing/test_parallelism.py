from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sizing.parallelism import (
    Bounds,
    decide_vertex,
    global_maximum,
    subpartition_count,
    vertex_bounds,
)


def info(row: Any) -> Any:
    return np.array(row, dtype=np.int64)


@pytest.mark.parametrize(
    ("option", "default", "cores", "expected"),
    [(7, 5, 2, 7), (None, 5, 2, 5), (None, None, 2, 128), (None, None, 64, 256), (None, None, 32, 128)],
)
def test_global_maximum(option: int | None, default: int | None, cores: int, expected: int) -> None:
    assert global_maximum(option, default, cores) == expected


@pytest.mark.parametrize(
    ("bounds", "maximum", "expected"),
    [
        ((2, 10), None, (2, 10)),
        ((2, 10), 4, (2, 4)),
        ((6, 10), 4, (4, 4)),  # the vertex's own maximum wins over a larger global minimum
        ((2, 10), 40, (2, 10)),
    ],
)
def test_vertex_bounds(bounds: Any, maximum: int | None, expected: Any) -> None:
    result = vertex_bounds(Bounds(bounds[0], bounds[1], 1), maximum)
    assert (result.minimum, result.maximum) == expected


@pytest.mark.parametrize(
    ("inputs", "bounds", "parallelism", "expected"),
    [
        ([info([30, 40, 50, 20, 39, 60])], (1, 10, 60), None, 5),
        ([info([10, 10, 10, 10])], (1, 10, 20), None, 2),
        ([info([10, 10, 10, 10])], (3, 10, 20), None, 4),  # no limit gives three; four is the nearest allowed number
        ([info([10, 10, 10, 10])], (1, 1, 20), None, 1),
        ([info([10, 10, 10, 10])], (1, 10, 20), 3, 3),
        ([info([10, 10, 10, 10]), info([30, 0, 0, 0])], (1, 10, 20), None, 3),  # packed together
        ([info([10, 10])], (1, 10, 20), 5, 5),  # some tasks read nothing
        ([info([0])], (1, 10, 20), None, 1),
    ],
)
def test_decide_vertex(inputs: Any, bounds: Any, parallelism: int | None, expected: int) -> None:
    decision = decide_vertex(inputs, Bounds(*bounds), parallelism)
    assert decision.parallelism == expected
    assert decision.reason


def test_inputs_need_equal_numbers_of_subpartitions() -> None:
    with pytest.raises(ValueError, match="different numbers of subpartitions"):
        decide_vertex([info([1, 2]), info([1])], Bounds(1, 10, 20))


@given(
    st.lists(st.lists(st.integers(0, 90), min_size=6, max_size=6), min_size=1, max_size=3),
    st.integers(1, 100),
    st.integers(1, 8),
    st.integers(0, 8),
)
def test_every_subpartition_is_read_once(rows: Any, volume: Any, low: Any, more: Any) -> None:
    decision = decide_vertex([info(row) for row in rows], Bounds(low, low + more, volume))
    assert decision.parallelism <= low + more
    assert [index for start, end in decision.ranges for index in range(start, end)] == list(range(6))


@given(st.integers(0, 1 << 45), st.integers(1, 1 << 30), st.integers(1, 4096))
def test_subpartitions_are_bounded(input_bytes: Any, volume: Any, upper: Any) -> None:
    assert 1 <= subpartition_count(input_bytes, volume, upper) <= upper


@pytest.mark.parametrize(("input_bytes", "expected"), [(0, 4), (16 << 20, 4), (160 << 20, 40), (16 << 30, 128)])
def test_subpartitions_follow_the_bytes(input_bytes: Any, expected: int) -> None:
    assert subpartition_count(input_bytes, 16 << 20, 128) == expected


@pytest.mark.parametrize("bad", [(0, 1, 1), (3, 2, 1), (1, 1, 0)])
def test_invalid_bounds(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"bounds|volume"):
        Bounds(*bad)
