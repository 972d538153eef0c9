from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from penstock.graph import AggregateOperator, JoinOperator, JoinSide, JoinType, Operator, OperatorKind
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.optimizer.skewed_aggregation import AdaptiveSkewedAggregation
from penstock.optimizer.skewed_join import AdaptiveSkewedJoin
from penstock.testing import RESOURCES, StrategyHarness, measured

EVEN, HOT = (100, 100, 100, 100), (100, 3000, 100, 100)
STRATEGY = "table.optimizer.skewed-join-optimization.strategy"
AGGREGATE, KEEPS_ALL = AggregateOperator(None), AggregateOperator("it keeps every value")
REPARTITION, WINDOW = Operator(OperatorKind.REPARTITION), Operator(OperatorKind.WINDOW)
INNER = JoinOperator(JoinType.INNER)
WHOLE_KEY = "needs all rows of a key in one task"


def case(join_type: Any, text: str = "1 #> 3\n2 #> 3\n3 #> 4", config: Any = None) -> Any:
    joins = {3: JoinOperator(JoinType(join_type))}
    return StrategyHarness([AdaptiveBroadcastJoin, AdaptiveSkewedJoin], text, joins, config=config)


@pytest.mark.parametrize(
    ("join_type", "left", "right", "cut"),
    [
        ("Inner", HOT, EVEN, {"1"}),
        ("Inner", EVEN, HOT, {"2"}),
        ("Inner", HOT, HOT, {"1", "2"}),
        ("Inner", EVEN, EVEN, set()),
        ("LeftOuter", HOT, HOT, {"1"}),
        ("LeftSemi", HOT, HOT, {"1"}),
        ("LeftAnti", HOT, HOT, {"1"}),
        ("RightOuter", HOT, HOT, {"2"}),
        ("FullOuter", HOT, HOT, set()),
        ("Inner", (100, 400, 100, 100), EVEN, set()),  # not above four times the median
        ("Inner", (100, 401, 100, 100), EVEN, {"1"}),
        ("Inner", (10, 250, 10, 10), EVEN, set()),  # below the threshold of 256 MiB
        ("Inner", HOT, (1, 1, 1, 1), set()),  # becomes a broadcast join
    ],
)
def test_sides(join_type: str, left: Any, right: Any, cut: Any) -> None:
    job = case(join_type)
    job.finish(1, measured(*left))
    job.finish(2, measured(*right))
    assert {edge[0] for edge in job.edges if edge.endswith("cut")} == cut


HINTS = [None, "merge", "broadcast", "shuffle_hash", "shuffle_replicate_nl", "no_broadcast_hash", "unknown"]


@pytest.mark.parametrize("strategy", ["AUTO", "FORCED"])
@pytest.mark.parametrize("join_type", ["Inner", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti"])
def test_hints(join_type: str, strategy: str) -> None:
    plain = {"Inner": {"1", "2"}, "RightOuter": {"2"}, "FullOuter": set()}.get(join_type, {"1"})
    for left, right in itertools.product(HINTS, HINTS[:-2]):
        join = JoinOperator(JoinType(join_type), JoinSide(left), JoinSide(right))
        job = StrategyHarness([AdaptiveSkewedJoin], "1 #> 3\n2 #> 3\n3 #> 4", {3: join}, config={STRATEGY: strategy})
        job.finish(1, measured(*HOT))
        job.finish(2, measured(*HOT))
        cut = {edge[0] for edge in job.edges if edge.endswith("cut")}
        assert cut == (plain if {left, right} <= {None, "merge"} else set()), (left, right)


def with_consumer(node: Any, config: Any = None) -> Any:
    job = StrategyHarness([AdaptiveSkewedJoin], "1 #> 3\n2 #> 3\n3 -> 4\n4 ~> 5", {3: INNER, 5: node}, config=config)
    job.finish(1, measured(*HOT))
    job.finish(2, measured(*EVEN))
    return job


def test_a_mergeable_aggregate_after_the_join_allows_a_split() -> None:
    assert with_consumer(AGGREGATE).edges == {"1 #> 3 cut", "2 #> 3", "3 -> 4", "4 #> 5"}


def test_an_aggregate_that_cannot_be_merged_prevents_a_split() -> None:
    job = with_consumer(KEEPS_ALL)
    assert job.edges == {"1 #> 3", "2 #> 3", "3 -> 4", "4 ~> 5"}
    assert "it keeps every value" in str(job.decisions[-1])


def test_strategy_forced() -> None:
    job = with_consumer(WINDOW, {STRATEGY: "FORCED"})
    assert job.edges == {"1 #> 3 cut", "2 #> 3", "3 -> 4", "4 #> 5"}


def test_strategy_none() -> None:
    job = case("Inner", config={STRATEGY: "NONE"})
    job.finish(1, measured(*HOT))
    job.finish(2, measured(*EVEN))
    assert job.edges == {"1 #> 3", "2 #> 3", "3 #> 4"}


def test_a_hot_group_near_an_even_share_is_not_split() -> None:
    cores = dataclasses.replace(RESOURCES, cores=2)
    job = StrategyHarness(
        [AdaptiveSkewedAggregation], "1 #> 2\n2 ~> 3", {2: REPARTITION, 3: AGGREGATE}, resources=cores
    )
    job.finish(1, measured(*HOT))
    assert job.edges == {"1 #> 2", "2 ~> 3"}
    assert "the share of each of 2 cores" in str(job.decisions[-1])


@pytest.mark.parametrize(
    ("node", "sizes", "after"),
    [
        (AGGREGATE, HOT, {"1 #> 2 cut", "2 #> 3"}),
        (AGGREGATE, EVEN, {"1 #> 2", "2 ~> 3"}),
        (KEEPS_ALL, HOT, {"1 #> 2", "2 ~> 3"}),
        (WINDOW, HOT, {"1 #> 2", "2 ~> 3"}),
    ],
)
def test_a_repartition_before_an_aggregate(node: Any, sizes: Any, after: Any) -> None:
    job = StrategyHarness([AdaptiveSkewedAggregation], "1 #> 2\n2 ~> 3", {2: REPARTITION, 3: node})
    job.finish(1, measured(*sizes))
    assert job.edges == after


@pytest.mark.parametrize(
    ("target", "sizes", "expected"),
    [
        (KEEPS_ALL, HOT, ["it cannot be merged from partial results: it keeps every value"]),
        (Operator(OperatorKind.GROUPED_MAP), HOT, [f"it {WHOLE_KEY}"]),
        (WINDOW, HOT, [f"it {WHOLE_KEY}"]),
        (AGGREGATE, HOT, []),
        (KEEPS_ALL, EVEN, []),
    ],
)
def test_a_hot_key_that_cannot_be_split_is_recorded(target: Any, sizes: Any, expected: list[str]) -> None:
    job = StrategyHarness([AdaptiveSkewedAggregation], "1 #> 2\n2 -> 3", {2: target})
    job.finish(1, measured(*sizes))
    assert [decision.reason.split(";")[0] for decision in job.decisions] == expected
    assert all(decision.chosen == "not split" and decision.nodes == (2,) for decision in job.decisions)
    assert not {edge for edge in job.edges if edge.endswith("cut")}
