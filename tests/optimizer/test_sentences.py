"""The sentences in which users read the decisions of strategies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.decisions.log import DecisionKind
from penstock.graph import (
    AggregateOperator,
    FilterPath,
    GroupingSets,
    JoinInput,
    JoinOperator,
    JoinSide,
    JoinType,
    Operator,
    OperatorKind,
    ScanOperator,
    Side,
)
from penstock.optimizer import StrategyContext, StreamGraphOptimizationStrategy
from penstock.optimizer.optimizer import DEFAULT_STRATEGIES
from penstock.testing import MIB, StrategyHarness, measured
from tests.support.words import INTERNAL_TERMS

ORDERS = JoinSide(
    keys=("o_custkey",), tables=("orders",), key_tables=("orders",), source_bytes=90 * MIB, may_shrink=True
)
CUSTOMER = JoinSide(
    keys=("c_custkey",), tables=("customer",), key_tables=("customer",), source_bytes=20 * MIB, may_shrink=True
)
NATION = replace(CUSTOMER, tables=("customer", "nation"))
JOIN = JoinOperator(JoinType.INNER, left=ORDERS, right=CUSTOMER)
SCANS = {1: ScanOperator(bytes=90 * MIB, rows=10_000_000, table="orders"), 2: ScanOperator(20 * MIB, 1000, "customer")}
TEXT = "1 #> 3\n2 #> 3\n3 -> 4"
FILTER = FilterPath(Side.LEFT, (1,), JoinInput(3, Side.RIGHT), keys_from=2)
HOT, EVEN = (30, 3000, 30, 30), (40, 40, 40, 40)
SORT = Operator(OperatorKind.SORT)
MERGE = "table.optimizer.skewed-join-optimization.strategy"


def decided(join: JoinOperator = JOIN, text: str = TEXT, **sizes: Any) -> StrategyHarness:
    """Return a job of all strategies, whose sources have finished with some sizes."""
    job = StrategyHarness(DEFAULT_STRATEGIES, text, {**SCANS, 3: join})
    for node, result in sizes.items():
        job.finish(int(node[1:]), result)
    return job


CASES: dict[str, tuple[StrategyHarness, DecisionKind, str]] = {
    "a broadcast of a side that was measured first": (
        decided(n2=measured(5)),
        DecisionKind.BROADCAST,
        (
            "orders join customer on o_custkey: broadcast instead of shuffle, as customer is 5.0 MiB compressed (limit 10.0 MiB); "
            "about 90.0 MiB of orders not shuffled"
        ),
    ),
    "a side of several tables": (
        decided(replace(JOIN, right=NATION), n2=measured(5)),
        DecisionKind.BROADCAST,
        (
            "orders join customer on o_custkey: broadcast instead of shuffle, as customer with nation is 5.0 MiB "
            "compressed (limit 10.0 MiB); about 90.0 MiB of orders not shuffled"
        ),
    ),
    "a side that is too large": (
        decided(n2=measured(12)),
        DecisionKind.BROADCAST,
        "orders join customer on o_custkey: customer is not broadcast, as it is 12.0 MiB compressed (limit 10.0 MiB)",
    ),
    "a side that takes too much memory": (
        decided(n2=measured(3, memory=500 * MIB)),
        DecisionKind.BROADCAST,
        (
            "orders join customer on o_custkey: customer is not broadcast, as its 3.0 MiB compressed would take "
            "500.0 MiB in memory (limit 400.0 MiB)"
        ),
    ),
    "a side that waits": (
        decided(),
        DecisionKind.BUILD_SIDE_FIRST,
        (
            "orders join customer on o_custkey: orders waits until customer is measured, which reads 20.0 MiB and may "
            "become small enough to broadcast, or to filter orders"
        ),
    ),
    "a filter": (
        decided(replace(JOIN, filters=(FILTER,)), n2=measured(30, rows=100, scanned={2: 1000})),
        DecisionKind.DYNAMIC_FILTER,
        (
            "orders keeps only rows with a key of customer on o_custkey, as customer has only 100 rows; the "
            "filter keeps about 10.0% of orders"
        ),
    ),
    "a filter by which data is skipped": (
        decided(replace(JOIN, filters=(replace(FILTER, prunes=True),)), n2=measured(30, rows=100)),
        DecisionKind.DYNAMIC_FILTER,
        (
            "orders keeps only rows with a key of customer on o_custkey, as the source can skip data of "
            "orders that has none of these keys"
        ),
    ),
    "hash tables that fit": (
        decided(n2=measured(*[15] * 4), n1=measured(*[90] * 4)),
        DecisionKind.JOIN_ALGORITHM,
        (
            "orders join customer on o_custkey: hash join instead of sort-merge join, as each task's part of customer takes "
            "at most 15.0 MiB in memory (limit 100.0 MiB)"
        ),
    ),
    "skew": (
        decided(n2=measured(*EVEN), n1=measured(*HOT)),
        DecisionKind.SKEW,
        (
            "orders join customer on o_custkey: 1 of 4 partitions of orders are split among several tasks, as the largest "
            "has 2.9 GiB and the median is 30.0 MiB"
        ),
    ),
    "skew of a side that cannot be split": (
        decided(replace(JOIN, type=JoinType.FULL_OUTER), n1=measured(*HOT), n2=measured(*EVEN)),
        DecisionKind.SKEW,
        (
            "orders join customer on o_custkey: the large partitions of orders are not split, as a full outer join needs all "
            "rows of a key from this side in one task"
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_sentence_names_tables_and_keys_of_the_query(case: str) -> None:
    job, kind, expected = CASES[case]
    *_, sentence = (decision.displayed.sentence for decision in job.decisions if decision.kind is kind)
    assert sentence == expected
    assert not INTERNAL_TERMS.search(sentence)


def test_no_shuffle_after_a_single_task() -> None:
    job = StrategyHarness(
        DEFAULT_STRATEGIES, "1 #> 2\n2 #> 3\n3 -> 4", {1: SCANS[1], 2: AggregateOperator(None), 3: SORT}
    )
    job.finish(1, measured(2))
    (decision,) = job.decisions
    assert (
        decision.displayed.sentence
        == "n3: no shuffle before it, as a single task already has all rows (the input of n2 is 2.0 MiB)"
    )


def test_aggregation_before_rows_are_copied() -> None:
    sets = AggregateOperator(None, GroupingSets(2, 5, ((JoinInput(13, Side.RIGHT),),)))
    text = "1 -> 13\n9 *> 13\n13 -> 2\n2 #> 3"
    job = StrategyHarness(DEFAULT_STRATEGIES, text, {1: SCANS[1], 13: JOIN, 3: sets})
    job.finish(9, measured(1, rows=10))
    (decision,) = (decision for decision in job.decisions if decision.kind is DecisionKind.EARLY_AGGREGATION)
    assert decision.displayed.sentence == (
        "n3: aggregated before rows are copied for each grouping set, as 10,000,000 rows fall into at most 10 groups, "
        "and 5 grouping sets would copy every row 5 times"
    )


@pytest.mark.parametrize(
    ("size", "is_shown"),
    [(12, True), (200, False)],  # readers do not wonder why a large table is not broadcast
)
def test_an_obvious_decision_is_not_shown(size: int, is_shown: bool) -> None:
    (decision,) = (
        decision for decision in decided(n2=measured(size)).decisions if decision.kind is DecisionKind.BROADCAST
    )
    assert decision.displayed.is_shown is is_shown


def test_a_broadcast_names_its_option_and_the_bytes_it_saves() -> None:
    displayed = CASES["a broadcast of a side that was measured first"][0].decisions[-1].displayed
    assert displayed.option == "table.optimizer.join.broadcast-threshold"
    assert displayed.not_shuffled == 90 * MIB
    assert displayed.tables == ("orders", "customer")


def test_a_broadcast_after_the_shuffle_of_the_other_side_saves_nothing() -> None:
    both = replace(JOIN, left=replace(ORDERS, may_shrink=False), right=replace(CUSTOMER, may_shrink=False))
    job = decided(both, n2=measured(5))
    (displayed,) = (decision.displayed for decision in job.decisions if decision.kind is DecisionKind.BROADCAST)
    assert displayed.not_shuffled is None
    assert displayed.sentence.endswith("(limit 10.0 MiB); orders was already shuffled when customer was measured")


MANY = JoinSide(keys=("item_sk",), tables=("sales", "a", "b", "c", "d"), is_aggregated=True)
SELF_JOIN = "groups of sales with 4 more tables join others like them on item_sk"


@pytest.mark.parametrize(
    ("sizes", "sentences"),
    [
        (
            {"n2": measured(5)},
            [
                (
                    "one side is broadcast, as it is 5.0 MiB compressed (limit 10.0 MiB); the other side was already "
                    "shuffled when one side was measured"
                ),
            ],
        ),
        (
            {"n1": measured(12), "n2": measured(5)},
            [
                "one side is not broadcast, as it is 12.0 MiB compressed (limit 10.0 MiB)",
                (
                    "one side is broadcast, as it is 5.0 MiB compressed (limit 10.0 MiB); the other side is not, as it is "
                    "12.0 MiB compressed; the other side was already shuffled when one side was measured"
                ),
            ],
        ),
    ],
)
def test_sides_with_equal_names_are_distinguished(sizes: Any, sentences: list[str]) -> None:
    job = decided(JoinOperator(JoinType.INNER, left=MANY, right=MANY), **sizes)
    broadcasts = [decision for decision in job.decisions if decision.kind is DecisionKind.BROADCAST]
    assert [decision.displayed.sentence for decision in broadcasts] == [
        f"{SELF_JOIN}: {sentence}" for sentence in sentences
    ]


def test_a_side_waits_for_a_side_with_an_equal_name() -> None:
    many = replace(MANY, source_bytes=90 * MIB, may_shrink=True)
    job = decided(JoinOperator(JoinType.INNER, left=many, right=replace(many, source_bytes=20 * MIB)))
    (displayed,) = (decision.displayed for decision in job.decisions if decision.kind is DecisionKind.BUILD_SIDE_FIRST)
    assert displayed.sentence.startswith(
        f"{SELF_JOIN}: one side waits until the other side is measured, which reads 20.0 MiB"
    )


@pytest.mark.parametrize(
    ("refused", "refusal"),
    [
        (measured(12), "; orders is not, as it is 12.0 MiB compressed"),
        (
            measured(3, memory=500 * MIB),
            "; orders is not, as its 3.0 MiB compressed would take 500.0 MiB in memory (limit 400.0 MiB)",
        ),
        (measured(200), ""),  # readers do not wonder why a large table is not broadcast
    ],
)
def test_a_broadcast_says_why_the_other_side_is_not_broadcast(refused: Any, refusal: str) -> None:
    both = replace(JOIN, left=replace(ORDERS, may_shrink=False), right=replace(CUSTOMER, may_shrink=False))
    job = decided(both, n1=refused, n2=measured(5))
    *_, displayed = (decision.displayed for decision in job.decisions if decision.kind is DecisionKind.BROADCAST)
    assert displayed.sentence == (
        f"orders join customer on o_custkey: customer is broadcast, as it is 5.0 MiB compressed (limit 10.0 MiB){refusal}; "
        "orders was already shuffled when customer was measured"
    )


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (
            "1 #> 3\n2 #> 3\n3 -> 4\n1 #> 5",
            "(limit 10.0 MiB); orders is still written, because several steps read it",
        ),
        ("7 #> 1\n1 #> 3\n2 #> 3\n3 -> 4", "(limit 10.0 MiB)"),  # the rows after an aggregate are unknown
    ],
)
def test_saved_bytes_are_shown_only_if_they_can_be_estimated(text: str, end: str) -> None:
    nodes = {**SCANS, 3: JOIN, 5: SORT}
    if "7" in text:
        nodes = {2: SCANS[2], 7: SCANS[1], 1: AggregateOperator(not_mergeable=None), 3: JOIN}
    job = StrategyHarness(DEFAULT_STRATEGIES, text, nodes)
    job.finish(2, measured(5))
    (displayed,) = (decision.displayed for decision in job.decisions if decision.kind is DecisionKind.BROADCAST)
    assert displayed.not_shuffled is None
    assert displayed.sentence.endswith(end)


def test_the_selectivity_of_a_filter_is_an_estimate() -> None:
    (displayed,) = (
        decision.displayed
        for decision in CASES["a filter"][0].decisions
        if decision.kind is DecisionKind.DYNAMIC_FILTER
    )
    assert displayed.estimate is not None
    assert str(displayed.estimate.with_actual(0.4)) == "10.0% estimated, 40.0% actual (missed: 4.0 times more)"


@pytest.mark.parametrize(
    ("node", "chosen", "sentence"),
    [
        (3, Side.RIGHT, "orders join customer on o_custkey: customer is broadcast, as it has few rows"),
        (3, "unchanged", "orders join customer on o_custkey: unchanged, as it has few rows"),
        (1, "four", "orders: four, as it has few rows"),
    ],
)
def test_a_decision_of_a_user_strategy_names_tables_and_keys(node: int, chosen: Any, sentence: str) -> None:
    class Decides(StreamGraphOptimizationStrategy):
        def initialize(self, context: StrategyContext) -> None:
            context.decide(DecisionKind.BROADCAST, context.stream_graph.node(node), chosen, "it has few rows")

        def on_operators_finished(self, finished: Any, context: StrategyContext) -> bool:
            return False

    (decision,) = StrategyHarness([Decides], TEXT, {**SCANS, 3: JOIN}).decisions
    assert decision.displayed.sentence == sentence
