from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.graph import JoinOperator, JoinSide, JoinType
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.testing import MIB, RESOURCES, StrategyHarness, measured

INNER = JoinOperator(JoinType.INNER)
TEXT = "1 #> 3\n2 #> 3\n3 -> 4"


def case(join_type: str = "Inner", text: Any = TEXT, **facts: Any) -> Any:
    return StrategyHarness([AdaptiveBroadcastJoin], text, {3: JoinOperator(JoinType(join_type))}, **facts)


# join type, what finishes (node: MiB), edges after
SWITCHES = [
    ("Inner", {1: 3}, {"1 *> 3", "2 /> 3", "3 -> 4"}),  # both sides started together, so 2 is being written
    ("Inner", {2: 3}, {"1 /> 3", "2 *> 3", "3 -> 4"}),
    ("Inner", {1: 10}, {"1 #> 3", "2 #> 3", "3 -> 4"}),  # not less than the threshold
    ("Inner", {1: 30, 2: 3}, {"1 /> 3", "2 *> 3", "3 -> 4"}),
    ("LeftOuter", {1: 3}, {"1 #> 3", "2 #> 3", "3 -> 4"}),
    ("LeftOuter", {1: 3, 2: 4}, {"1 /> 3", "2 *> 3", "3 -> 4"}),
    ("LeftSemi", {2: 3}, {"1 /> 3", "2 *> 3", "3 -> 4"}),
    ("LeftAnti", {2: 3}, {"1 /> 3", "2 *> 3", "3 -> 4"}),
    ("RightOuter", {2: 3}, {"1 #> 3", "2 #> 3", "3 -> 4"}),
    ("RightOuter", {1: 3}, {"1 *> 3", "2 /> 3", "3 -> 4"}),
    ("FullOuter", {1: 0, 2: 0}, {"1 #> 3", "2 #> 3", "3 -> 4"}),
    ("Inner", {1: 0}, {"1 *> 3", "2 /> 3", "3 -> 4"}),
]


@pytest.mark.parametrize(("join_type", "finished", "after"), SWITCHES)
def test_switch(join_type: str, finished: Any, after: Any) -> None:
    job = case(join_type)
    for node_id, size in finished.items():
        job.finish(node_id, measured(size))
    assert job.edges == after


def test_a_pending_probe_side_is_chained() -> None:
    job = case(text="1 #> 3\n0 #> 2\n2 #> 3\n3 -> 4")
    job.finish(1, measured(3))
    assert job.edges == {"1 *> 3", "0 #> 2", "2 -> 3", "3 -> 4"}
    assert job.finish(0, measured(500)) == ["n2 -> n3 -> n4"]


def test_a_user_parallelism_is_preserved() -> None:
    job = StrategyHarness([AdaptiveBroadcastJoin], "1 #> 3\n0 #> 2\n2 #> 3", {3: INNER}, parallelism={3: 2, 2: 7})
    job.finish(1, measured(3))
    assert job.edges == {"1 *> 3", "0 #> 2", "2 /> 3"}


def test_nodes_relying_on_the_hash_partitioning_get_an_exchange() -> None:
    job = case(text="1 #> 3\n0 #> 2\n2 #> 3\n3 -> 4\n4 ~> 5\n5 -> 6\n6 ~> 7")
    job.finish(1, measured(3))
    assert job.edges == {"1 *> 3", "0 #> 2", "2 -> 3", "3 -> 4", "4 #> 5", "5 -> 6", "6 #> 7"}


def test_a_chained_probe_side_remains_hash_partitioned() -> None:
    job = case(text="1 #> 3\n0 #> 2\n2 ~> 3\n3 ~> 4")
    job.finish(1, measured(3))
    assert job.edges == {"1 *> 3", "0 #> 2", "2 -> 3", "3 ~> 4"}


def test_a_second_broadcast_join_of_a_chain_is_not_exchanged() -> None:
    job = StrategyHarness(
        [AdaptiveBroadcastJoin], "8 #> 1\n1 #> 3\n9 #> 2\n2 #> 3\n3 ~> 5\n4 #> 5\n5 ~> 6", {3: INNER, 5: INNER}
    )
    job.finish(4, measured(3))
    assert job.edges == {"8 #> 1", "1 #> 3", "9 #> 2", "2 #> 3", "3 -> 5", "4 *> 5", "5 ~> 6"}
    job.finish(9, measured(500))
    job.finish(2, measured(3))
    assert job.edges == {"8 #> 1", "1 -> 3", "9 #> 2", "2 *> 3", "3 -> 5", "4 *> 5", "5 #> 6"}


def test_the_hash_table_must_fit_in_memory() -> None:
    job = case()
    job.finish(1, measured(3, memory=500 << 20))
    assert job.edges == {"1 #> 3", "2 #> 3", "3 -> 4"}
    assert "its 3.0 MiB compressed would take 500.0 MiB in memory (limit 400.0 MiB)" in str(job.decisions[-1])


@pytest.mark.parametrize(
    "config",
    [
        {"table.optimizer.adaptive-broadcast-join.strategy": "NONE"},
        {"table.optimizer.adaptive-broadcast-join.strategy": "RUNTIME_ONLY"},
    ],
)
def test_strategy_option(config: dict[str, Any]) -> None:
    job = case(config=config)
    job.finish(1, measured(3))
    assert ("1 *> 3" in job.edges) is ("RUNTIME_ONLY" in config.values())


def test_a_join_hint_takes_precedence() -> None:
    job = StrategyHarness([AdaptiveBroadcastJoin], TEXT, {3: JoinOperator(JoinType.INNER, left=JoinSide(hint="merge"))})
    job.finish(1, measured(3))
    assert job.edges == {"1 #> 3", "2 #> 3", "3 -> 4"}


def test_a_planned_broadcast_join_is_unchanged() -> None:
    job = StrategyHarness([AdaptiveBroadcastJoin], "1 *> 3\n2 -> 3\n3 #> 4", {3: INNER})
    job.finish(1, measured(3))
    assert job.edges == {"1 *> 3", "2 -> 3", "3 #> 4"}


@pytest.mark.parametrize(
    ("limit", "option", "reason"),
    [
        (-1, {}, "broadcasts are turned off (table.optimizer.join.broadcast-threshold = -1)"),
        (-1, {"broadcast_option": "spark.sql.x"}, "broadcasts are turned off (spark.sql.x = -1)"),
        (MIB, {}, "it has 3.0 MiB, not below the limit of 1.0 MiB (table.optimizer.join.broadcast-threshold)"),
    ],
)
def test_reason_for_no_broadcast(limit: int, option: Any, reason: str) -> None:
    job = case(resources=replace(RESOURCES, broadcast_threshold=limit, **option))
    job.finish(1, measured(3))
    assert [(decision.chosen, decision.reason) for decision in job.decisions] == [("not the left side", reason)]
