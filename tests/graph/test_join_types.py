from __future__ import annotations

from typing import Any

import pytest

from penstock.graph import JoinType, Side

# join type: (can build, can filter, can split, can hash, keeps keys), each as the sides for which it holds: l, r
TABLE = {
    JoinType.INNER: ("lr", "lr", "lr", "lr", "lr"),
    JoinType.CROSS: ("lr", "lr", "lr", "lr", "lr"),
    JoinType.LEFT_OUTER: ("r", "r", "l", "lr", "l"),
    JoinType.RIGHT_OUTER: ("l", "l", "r", "lr", "r"),
    JoinType.FULL_OUTER: ("", "", "", "lr", ""),
    JoinType.LEFT_SEMI: ("r", "lr", "l", "r", "l"),
    JoinType.LEFT_ANTI: ("r", "r", "l", "r", "l"),
    JoinType.EXISTENCE: ("r", "r", "l", "r", "l"),
    JoinType.LEFT_SINGLE: ("r", "", "", "r", "l"),
}


@pytest.mark.parametrize("join_type", JoinType)
def test_sides(join_type: Any) -> None:
    rules = (join_type.can_build, join_type.can_filter, join_type.can_split, join_type.can_hash, join_type.keeps_keys)
    assert tuple("".join(side[0] for side in Side if rule(side)) for rule in rules) == TABLE[join_type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Inner", JoinType.INNER),
        ("ExistenceJoin(exists#12)", JoinType.EXISTENCE),
        ("NaturalJoin(Inner)", None),
        ("", None),
    ],
)
def test_parse(text: str, expected: Any) -> None:
    assert JoinType.parse(text) is expected


@pytest.mark.parametrize(("side", "other", "number"), [(Side.LEFT, Side.RIGHT, 1), (Side.RIGHT, Side.LEFT, 2)])
def test_side(side: Any, other: Any, number: int) -> None:
    assert (side.other, side.input_number, Side.of_input(number)) == (other, number, side)
