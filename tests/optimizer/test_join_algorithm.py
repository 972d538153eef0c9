from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.log import DecisionKind
from penstock.graph import JoinOperator, JoinStrategy, JoinType, Operator, OperatorKind, ShuffledJoin, Side
from penstock.optimizer.join_algorithm import JoinAlgorithm, largest_hash_table, smallest_hash_table
from penstock.testing import MIB, StrategyHarness, measured


@pytest.mark.parametrize(
    ("sizes", "memory", "all_bytes", "volume", "expected"),
    [
        ((10, 10, 10, 10), 400, 80, 20, 100),  # a task reads 10 MiB of this side, which take ten times that in memory
        ((10, 10, 10, 70), 400, 200, 20, 280),  # the largest subpartition has more
        ((10, 10, 10, 10), 400, 80, 200, 400),  # a task may read the whole side
        ((0, 0), 0, 10, 16, 0),
    ],
)
def test_largest_table(sizes: Any, memory: int, all_bytes: int, volume: int, expected: int) -> None:
    info = measured(*sizes, rows=0, memory=memory * MIB)
    assert largest_hash_table(info, all_bytes * MIB, volume * MIB) == expected * MIB


@pytest.mark.parametrize(
    ("join_type", "left", "right", "limit", "expected"),
    [
        ("Inner", (5, 5), (50, 50), 100, "left"),
        ("Inner", (50, 50), (5, 5), 100, "right"),
        ("Inner", (5, 500), (600, 600), 400, None),
        ("Inner", (5, 500), (300, 300), 400, "right"),
        ("Inner", (5, 5), (5, 5), 100, "right"),
        ("LeftOuter", (5, 5), (50, 50), 100, "left"),
        ("LeftOuter", (50, 50), (5, 5), 100, "right"),
        ("RightOuter", (5, 5), (50, 50), 100, "left"),
        ("RightOuter", (50, 50), (5, 5), 100, "right"),
        ("FullOuter", (5, 5), (50, 50), 100, "left"),
        ("FullOuter", (50, 50), (5, 5), 100, "right"),
        ("FullOuter", (5, 5), (5, 5), 100, "right"),
        ("Cross", (5, 5), (50, 50), 100, "left"),
        ("LeftSemi", (5, 5), (50, 50), 100, "right"),
        ("LeftAnti", (5, 5), (50, 50), 100, "right"),
        ("LeftSingle", (5, 5), (50, 50), 100, "right"),
        ("ExistenceJoin", (5, 5), (50, 50), 100, "right"),
    ],
)
def test_smallest_table(join_type: str, left: Any, right: Any, limit: int, expected: str | None) -> None:
    results = {Side.LEFT: measured(*left, rows=0), Side.RIGHT: measured(*right, rows=0)}
    table = smallest_hash_table(JoinType(join_type), results, 16 * MIB, limit * MIB)
    assert (table and table[0]) == expected


INNER = JoinOperator(JoinType.INNER)


def test_the_algorithm_is_chosen_once_both_sides_are_measured() -> None:
    job = StrategyHarness([JoinAlgorithm], "1 #> 3\n2 #> 3\n3 -> 4", {3: INNER})
    job.finish(1, measured(20, 20))
    assert job.operator(3) == INNER
    assert job.finish(2, measured(200, 200)) == ["n3 -> n4"]
    assert job.operator(3).strategy == JoinStrategy(ShuffledJoin.SHUFFLED_HASH, Side.LEFT)
    assert job.chosen(DecisionKind.JOIN_ALGORITHM) == ["shuffled hash join, build side left"]


def test_a_hash_table_is_never_larger_than_its_side() -> None:
    job = StrategyHarness([JoinAlgorithm], "1 #> 3\n2 #> 3\n3 -> 4", {3: INNER})
    job.finish(1, measured(1 / 2048, memory=464, rows=10))
    job.finish(2, measured(0.25))
    (decision,) = job.decisions
    assert decision.reason == "the largest hash table of a task takes 784 B; Penstock allows 100.0 MiB"


def test_no_hash_join_if_tasks_may_be_coalesced() -> None:
    facts = {3: INNER, 5: Operator(OperatorKind.OPAQUE)}
    job = StrategyHarness([JoinAlgorithm], "1 #> 3\n2 #> 3\n3 -> 4\n4 -> 5", facts)
    job.finish(1, measured(20, 20))
    job.finish(2, measured(200, 200))
    assert job.operator(3) == INNER
