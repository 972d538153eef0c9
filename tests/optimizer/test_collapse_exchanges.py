"""Exchanges after operators that run in a single task are removed: graphs before and after."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.log import DecisionKind
from penstock.graph import AggregateOperator, CalcOperator, JoinOperator, JoinType, Operator, OperatorKind, ScanOperator
from penstock.optimizer.collapse_exchanges import CollapseExchanges
from penstock.testing import StrategyHarness, measured

AGGREGATE, SORT, WINDOW = AggregateOperator(None), Operator(OperatorKind.SORT), Operator(OperatorKind.WINDOW)
SOURCE, CALC, INNER = ScanOperator(), CalcOperator(is_cheap=True), JoinOperator(JoinType.INNER)


def case(text: str, operators: Any, parallelism: Any = None) -> Any:
    return StrategyHarness([CollapseExchanges], text, {1: SOURCE, **operators}, parallelism=parallelism)


@pytest.mark.parametrize(
    ("text", "operators", "size", "expected"),
    [
        ("1 #> 2\n2 #> 3\n3 -> 4", {2: AGGREGATE, 3: SORT}, 16, {"1 #> 2", "2 -> 3", "3 -> 4"}),
        ("1 #> 2\n2 #> 3\n3 -> 4", {2: AGGREGATE, 3: SORT}, 17, {"1 #> 2", "2 #> 3", "3 -> 4"}),
        (
            "1 #> 2\n2 -> 3\n3 #> 4\n4 #> 5",
            {2: AGGREGATE, 3: CALC, 4: WINDOW, 5: SORT},
            1,
            {"1 #> 2", "2 -> 3", "3 -> 4", "4 -> 5"},
        ),
        # a join may produce more rows than it reads, and so may a narrow operator other than projections and filters
        (
            "1 #> 2\n2 #> 3\n9 #> 3\n3 #> 4",
            {2: AGGREGATE, 3: INNER, 4: SORT},
            1,
            {"1 #> 2", "2 #> 3", "9 #> 3", "3 #> 4"},
        ),
        ("1 #> 2\n2 -> 3\n3 #> 4", {2: AGGREGATE, 3: CalcOperator(), 4: SORT}, 1, {"1 #> 2", "2 -> 3", "3 #> 4"}),
        # a chained join relies on the exchange to match its other side
        (
            "1 #> 2\n2 #> 3\n3 ~> 4\n9 #> 4",
            {2: AGGREGATE, 3: AGGREGATE, 4: INNER},
            1,
            {"1 #> 2", "2 #> 3", "3 ~> 4", "9 #> 4"},
        ),
        ("1 #> 2\n2 #> 3\n3 ~> 4", {2: AGGREGATE, 3: AGGREGATE, 4: WINDOW}, 1, {"1 #> 2", "2 -> 3", "3 ~> 4"}),
        # several readers, and a repartition requested by the user
        ("1 #> 2\n2 #> 3\n2 #> 4", {2: AGGREGATE, 3: SORT, 4: SORT}, 1, {"1 #> 2", "2 #> 3", "2 #> 4"}),
        ("1 #> 2\n2 => 3", {2: AGGREGATE, 3: SORT}, 1, {"1 #> 2", "2 => 3"}),
    ],
)
def test_graphs(text: str, operators: Any, size: int, expected: Any) -> None:
    job = case(text, operators)
    job.finish(1, measured(size))
    assert job.edges == expected


def test_a_user_parallelism_is_preserved() -> None:
    job = case("1 #> 2\n2 #> 3", {2: AGGREGATE, 3: SORT}, parallelism={3: 3})
    job.finish(1, measured(1))
    assert job.edges == {"1 #> 2", "2 #> 3"}


def test_the_decision_is_recorded_once() -> None:
    job = case("1 #> 2\n2 #> 3", {2: AGGREGATE, 3: SORT})
    job.finish(1, measured(1))
    assert job.chosen(DecisionKind.EXCHANGE) == ["no HASH(k) exchange"]


@pytest.mark.parametrize(
    "config",
    [
        {"execution.batch.adaptive.auto-parallelism.enabled": False},
        {"execution.batch.adaptive.auto-parallelism.min-parallelism": 2},
    ],
)
def test_options_that_forbid_a_single_task(config: dict[str, Any]) -> None:
    job = StrategyHarness([CollapseExchanges], "1 #> 2\n2 #> 3", {1: SOURCE, 2: AGGREGATE, 3: SORT}, config=config)
    job.finish(1, measured(1))
    assert job.edges == {"1 #> 2", "2 #> 3"}
