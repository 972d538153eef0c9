"""Operators reject invalid combinations of facts."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import GraphError
from penstock.graph import (
    AggregateOperator,
    FilterPath,
    JoinInput,
    JoinOperator,
    JoinSide,
    JoinStrategy,
    JoinType,
    ScanOperator,
    ShuffledJoin,
    Side,
)

LEFT_PATH = FilterPath(Side.LEFT, (1,), JoinInput(3, Side.RIGHT))
BAD = {
    "negative bytes": lambda: ScanOperator(bytes=-1),
    "negative rows": lambda: ScanOperator(rows=-1),
    "aggregates first without grouping sets": lambda: AggregateOperator(None, aggregates_first=True),
    "a hash join without a build side": lambda: JoinStrategy(ShuffledJoin.SHUFFLED_HASH),
    "a sort-merge join with a build side": lambda: JoinStrategy(ShuffledJoin.SORT_MERGE, Side.LEFT),
    "a side that cannot be filtered": lambda: JoinOperator(JoinType.LEFT_OUTER, filters=(LEFT_PATH,)),
    "a side that cannot be hashed": lambda: JoinOperator(
        JoinType.LEFT_SEMI, strategy=JoinStrategy(ShuffledJoin.SHUFFLED_HASH, Side.LEFT)
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_operators(name: str) -> None:
    with pytest.raises(GraphError):
        BAD[name]()


def test_with_side_returns_a_copy() -> None:
    join = JoinOperator(JoinType.INNER)
    changed = join.with_side(Side.RIGHT, JoinSide(hint="merge"))
    assert (changed.left, changed.right.hint, join.right.hint) == (JoinSide(), "merge", None)


@pytest.mark.parametrize(
    ("hints", "hinted", "split"),
    [((None, None), False, True), (("merge", None), True, True), ((None, "broadcast"), True, False)],
)
def test_hints(hints: Any, hinted: bool, split: bool) -> None:
    join = JoinOperator(JoinType.INNER, *map(JoinSide, hints))
    assert (join.is_hinted, join.can_split(Side.LEFT)) == (hinted, split)
