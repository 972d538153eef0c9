from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from penstock.decisions.log import DecisionKind
from penstock.graph import (
    CalcOperator,
    DynamicFilterRef,
    FilterPath,
    JoinInput,
    JoinOperator,
    JoinSequence,
    JoinSide,
    JoinType,
    Side,
)
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.optimizer.join_order import JoinOrder, best_order
from penstock.testing import StrategyHarness, measured


@pytest.mark.parametrize(
    ("fractions", "needed", "order"),
    [
        ({1: 0.9, 2: 0.6, 3: 0.1}, {}, (3, 2, 1)),
        ({1: 0.5, 2: 0.5, 3: 0.5}, {}, (1, 2, 3)),
        ({1: 0.9, 2: 0.6, 3: 0.1}, {3: {1}}, (2, 1, 3)),
        ({1: 0.9, 2: 0.6, 3: 0.1}, {3: {2}, 2: {1}}, (1, 2, 3)),
    ],
)
def test_best_order(fractions: Any, needed: Any, order: Any) -> None:
    assert best_order([1, 2, 3], fractions, {join: needed.get(join, set()) for join in fractions}) == order


def join(number: Any, build: Any) -> Any:
    return JoinOperator(
        JoinType.INNER,
        left=JoinSide(columns=frozenset({"a"})),
        right=JoinSide(columns=frozenset({f"b{number}"})),
        filters=(FilterPath(Side.LEFT, (1,), JoinInput(number, Side.RIGHT), keys_from=build),),
        condition_columns=frozenset({"a"}),
        cannot_fail=True,
    )


TEXT = "1 -> 13\n3 *> 13\n13 -> 20\n20 -> 14\n4 *> 14\n14 -> 15\n5 *> 15\n15 #> 99"
DROPS = CalcOperator(drops_columns=True)
OPERATORS = {13: join(13, 3), 14: join(14, 4), 15: join(15, 5), 20: DROPS}


def run(changes: Any = None, filters: Any = None) -> Any:
    changed = {node: replace(OPERATORS[node], **new) for node, new in (changes or {}).items()}
    job = StrategyHarness([JoinOrder], TEXT, OPERATORS | changed, filters=filters)
    for source, rows in ((3, 90), (4, 50), (5, 1)):
        job.finish(source, measured(1, rows=rows, scanned={source: 100}))
    return job


def test_the_most_selective_join_runs_first() -> None:
    job = run()
    assert job.operator(15).strategy.sequence == JoinSequence((13, 20, 14, 15), (15, 14, 13))
    assert job.chosen(DecisionKind.JOIN_ORDER) == ["15 (keeps 1.0%), 14 (keeps 50.0%), 13 (keeps 90.0%)"]
    assert job.edges == StrategyHarness([], TEXT, OPERATORS).edges


@pytest.mark.parametrize(
    ("failing", "sequences"),
    [(13, {15: ((14, 15), (15, 14))}), (14, {}), (15, {14: ((13, 20, 14), (14, 13))})],
)
def test_a_join_that_may_fail_is_not_moved_or_overtaken(failing: int, sequences: Any) -> None:
    job = run({failing: {"cannot_fail": False}})
    expected = {n: JoinSequence(*sequences[n]) if n in sequences else None for n in (13, 14, 15)}
    assert {n: job.operator(n).strategy.sequence for n in (13, 14, 15)} == expected


@pytest.mark.parametrize("finished", list(itertools.permutations((3, 4, 5))))
def test_a_chain_that_grows_is_reordered(finished: Any) -> None:
    text = "0 #> 1\n1 #> 13\n3 #> 13\n13 #> 14\n4 #> 14\n14 #> 15\n5 #> 15\n15 #> 99"
    job = StrategyHarness([AdaptiveBroadcastJoin, JoinOrder], text, OPERATORS)
    for source in finished:
        job.finish(source, measured(1, rows={3: 90, 4: 50, 5: 1}[source], scanned={source: 100}))
    sequences = {n: job.operator(n).strategy.sequence for n in (13, 14, 15)}
    assert sequences == {13: None, 14: None, 15: JoinSequence((13, 14, 15), (15, 14, 13))}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {15: {"condition_columns": frozenset({"a", "b13"})}},
            (14, 13, 15),
        ),  # the condition of 15 needed a column of 13
        (
            {15: {"condition_columns": frozenset({"a", "b13"})}, 14: {"condition_columns": frozenset({"b13"})}},
            (13, 15, 14),
        ),
        ({20: {"drops_columns": False}}, (15, 14)),  # 20 computes columns
        ({14: {"type": JoinType.LEFT_OUTER, "filters": ()}}, None),
    ],
)
def test_joins_that_cannot_be_reordered(changes: Any, expected: Any) -> None:
    sequence = run(changes).operator(15).strategy.sequence
    assert (sequence and sequence.joins) == expected


def test_joins_around_a_filtered_node_are_not_reordered() -> None:
    sequence = run(filters={20: (DynamicFilterRef(15, 0),)}).operator(15).strategy.sequence
    assert sequence is not None
    assert sequence.joins == (15, 14)
