from __future__ import annotations

from typing import Any

import pytest

from penstock.graph import JoinType, Side
from penstock.planner.distribution import UNKNOWN_DISTRIBUTION, Distribution, static_build_side

BY_AB = Distribution((("a", "b"),), 1)


@pytest.mark.parametrize(
    ("keys", "expected"), [(["a", "b"], True), (["c", "b", "a"], True), (["a"], False), (["c"], False), ([], False)]
)
def test_colocates(keys: list[str], expected: bool) -> None:
    assert BY_AB.colocates(keys) is expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [(["a", "b"], [0, 1]), (["b", "a"], [1, 0]), (["a"], None), (["a", "b", "c"], None), (["a", "a"], None)],
)
def test_hash_order(keys: list[str], expected: list[int] | None) -> None:
    assert BY_AB.hash_order(keys) == expected


@pytest.mark.parametrize(
    ("renamed", "output", "hashed_by"),
    [
        ({}, ["a", "b", "c"], (("a", "b"),)),
        ({"a": "x"}, ["x", "b"], (("x", "b"),)),
        ({}, ["a"], ()),
        ({"a": "x"}, ["a", "x", "b"], (("a", "b"),)),
    ],
)
def test_after_a_projection(renamed: Any, output: list[str], hashed_by: Any) -> None:
    assert BY_AB.after_projection(renamed, output).hashed_by == hashed_by


@pytest.mark.parametrize(
    ("equal", "hashed_by"),
    [
        ({"a": "x"}, (("a", "b"), ("x", "b"))),
        ({"a": "x", "b": "y"}, (("a", "b"), ("x", "y"))),
        ({"c": "x"}, (("a", "b"),)),
        ({}, (("a", "b"),)),
    ],
)
def test_equal_keys_of_the_other_side(equal: Any, hashed_by: Any) -> None:
    assert BY_AB.with_equal_keys(equal) == Distribution(hashed_by, 1)
    assert BY_AB.with_equal_keys(equal).with_equal_keys(equal) == Distribution(hashed_by, 1)


def test_equal_keys_are_limited_to_three() -> None:
    four = Distribution((("a", "b", "c", "d"),), 1)
    assert four.with_equal_keys({"a": "w", "b": "x", "c": "y", "d": "z"}) is four
    assert Distribution((("a", "b", "c"),), 1).with_equal_keys({"a": "w"}).hashed_by == (
        ("a", "b", "c"),
        ("w", "b", "c"),
    )


def test_unknown_distribution() -> None:
    assert UNKNOWN_DISTRIBUTION.with_equal_keys({"a": "x"}) is UNKNOWN_DISTRIBUTION
    assert not UNKNOWN_DISTRIBUTION.colocates(["a"])
    assert UNKNOWN_DISTRIBUTION.hash_order([]) is None


@pytest.mark.parametrize(
    ("join", "sizes", "hints", "threshold", "side"),
    [
        ("Inner", (5, 9), (None, None), 10, "left"),
        ("Inner", (9, 5), (None, None), 10, "right"),
        ("Inner", (5, 5), (None, None), 10, "right"),
        ("Inner", (50, 90), (None, None), 10, None),
        ("Inner", (5, 9), (None, None), -1, None),
        ("LeftOuter", (5, 90), (None, None), 10, None),
        ("LeftOuter", (5, 9), (None, None), 10, "right"),
        ("RightOuter", (5, 90), (None, None), 10, "left"),
        ("FullOuter", (5, 9), (None, None), 10, None),
        ("LeftSemi", (5, 9), (None, None), 10, "right"),
        ("Inner", (50, 90), (None, "broadcast"), 10, "right"),
        ("Inner", (50, 90), ("broadcast", "broadcast"), 10, "left"),
        ("LeftOuter", (50, 90), ("broadcast", None), 10, None),
        ("Inner", (5, 9), ("merge", None), 10, None),
        ("Inner", (5, 9), ("no_broadcast_hash", None), 10, "right"),
    ],
)
def test_static_build_side(join: str, sizes: Any, hints: Any, threshold: int, side: str | None) -> None:
    by_side = dict(zip(Side, sizes, strict=True)), dict(zip(Side, hints, strict=True))
    assert static_build_side(JoinType(join), *by_side, threshold) == side
