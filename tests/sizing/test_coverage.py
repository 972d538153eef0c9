from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import VerificationError
from penstock.sizing.coverage import check_ranges, check_rows, check_slices, check_splits
from penstock.sizing.skew_cut import Slice

WHOLE, LEFT, RIGHT = Slice((0, 2)), Slice((2, 3), (0, 2)), Slice((2, 3), (2, 4))
HOT = Slice((2, 3))


@pytest.mark.parametrize(
    ("ranges", "subpartitions"),
    [
        ([(0, 3)], 3),
        ([(0, 1), (1, 3)], 3),
        ([(0, 1), (0, 0), (1, 3)], 3),
        ([(0, 1), (1, 2), (2, 3), (3, 3)], 3),
    ],
)
def test_ranges_that_read_everything_once(ranges: Any, subpartitions: int) -> None:
    check_ranges("v1", ranges, subpartitions)


@pytest.mark.parametrize(
    ("ranges", "subpartitions"),
    [
        ([(0, 2)], 3),
        ([(1, 3)], 3),
        ([(0, 1), (2, 3)], 3),
        ([(0, 2), (1, 3)], 3),
        ([(0, 3), (0, 3)], 3),
        ([(0, 4)], 3),
        ([], 3),
    ],
)
def test_ranges_with_gaps_or_overlaps(ranges: Any, subpartitions: int) -> None:
    with pytest.raises(VerificationError, match="exactly once"):
        check_ranges("v1", ranges, subpartitions)


def slices(**edges: Any) -> Any:
    return {name: [task if isinstance(task, tuple) else (task,) for task in tasks] for name, tasks in edges.items()}


RIGHT_SLICES = {
    "one input": slices(a=[WHOLE, LEFT, RIGHT]),
    "one input, two slices in one task": slices(a=[(WHOLE, LEFT), RIGHT]),
    "the other side is read by both": slices(a=[WHOLE, LEFT, RIGHT], b=[WHOLE, HOT, HOT]),
    "both sides are split": slices(a=[WHOLE, LEFT, LEFT, RIGHT, RIGHT], b=[WHOLE, LEFT, RIGHT, LEFT, RIGHT]),
    "an empty subpartition is left out": slices(a=[Slice((0, 1)), LEFT, RIGHT]),
}
WRONG_SLICES = {
    "a slice is missing": slices(a=[WHOLE, LEFT]),
    "a slice is read twice": slices(a=[WHOLE, LEFT, LEFT, RIGHT]),
    "a pair is missing": slices(a=[WHOLE, LEFT, LEFT, RIGHT], b=[WHOLE, LEFT, RIGHT, LEFT]),
    "a pair is read twice": slices(a=[WHOLE, LEFT, RIGHT, RIGHT], b=[WHOLE, HOT, HOT, HOT]),
    "slices overlap": slices(a=[WHOLE, LEFT, Slice((2, 3), (1, 4))]),
    "a subpartition is missing": slices(a=[Slice((1, 2)), LEFT, RIGHT]),
    "three inputs": slices(a=[Slice((0, 3))], b=[Slice((0, 3))], c=[Slice((0, 3))]),
}


def check(edges: Any) -> None:
    check_slices("v1", edges, {edge: [5, 0, 90] for edge in edges}, dict.fromkeys(edges, 4))


@pytest.mark.parametrize("name", RIGHT_SLICES)
def test_slices_that_read_everything_once(name: str) -> None:
    check(RIGHT_SLICES[name])


@pytest.mark.parametrize("name", WRONG_SLICES)
def test_slices_with_gaps_or_overlaps(name: str) -> None:
    with pytest.raises(VerificationError, match=r"exactly once"):
        check(WRONG_SLICES[name])


@pytest.mark.parametrize(("written", "read"), [(3, 3), (None, 3), (3, None), (0, 0)])
def test_equal_numbers_of_rows(written: int | None, read: int | None) -> None:
    check_rows("the broadcast", written, read)


@pytest.mark.parametrize(("written", "read"), [(3, 2), (0, 1), (2, 0)])
def test_different_numbers_of_rows(written: int, read: int) -> None:
    with pytest.raises(VerificationError, match=f"must have {written} rows and has {read}"):
        check_rows("the broadcast", written, read)


def test_splits() -> None:
    check_splits("orders", 0)
    with pytest.raises(VerificationError, match="the splits of orders would not read 3 of its rows exactly once"):
        check_splits("orders", 3)
