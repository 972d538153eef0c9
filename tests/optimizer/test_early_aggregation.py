from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.log import DecisionKind
from penstock.graph import AggregateOperator, GroupingSets, JoinInput, JoinOperator, JoinType, ScanOperator, Side
from penstock.optimizer.early_aggregation import EarlyAggregation, is_cheaper_before_copies
from penstock.testing import MIB, StrategyHarness, measured


@pytest.mark.parametrize(
    ("rows", "groups", "copies", "expected"),
    [
        (1000, 10, 3, True),
        (1000, 1000, 3, False),  # a group per row: nothing is saved, and all rows are hashed twice
        (1000, 560, 3, True),
        (1000, 570, 3, False),
        (1000, 780, 9, True),  # more copies save more
        (1000, 10, 1, False),
        (0, 0, 3, True),
        (0, 5, 3, False),
    ],
)
def test_is_worth_it(rows: int, groups: int, copies: int, expected: bool) -> None:
    assert is_cheaper_before_copies(rows, groups, copies) is expected


# sales joined with items (3) and stores (4), copied by node 20 and aggregated by node 30
TEXT = "1 -> 13\n3 *> 13\n13 -> 14\n4 *> 14\n14 -> 20\n20 #> 30\n30 -> 40"


def facts(*origins: Any, copies: int = 3, rows: int = 1_000_000, **changes: Any) -> Any:
    return {
        1: ScanOperator(bytes=32 * MIB, rows=rows),
        13: JoinOperator(JoinType.INNER),
        14: JoinOperator(JoinType.INNER),
        30: AggregateOperator(None, GroupingSets(20, copies, origins)),
    } | {int(node): new for node, new in changes.items()}


ITEM, STORE = (JoinInput(14, Side.LEFT), JoinInput(13, Side.RIGHT)), (JoinInput(14, Side.RIGHT),)


def run(text: Any = TEXT, items: int = 1000, stores: int = 10, **changes: Any) -> Any:
    origins = changes.pop("origins", (ITEM, STORE))
    job = StrategyHarness([EarlyAggregation], text, facts(*origins, **changes))
    job.finish(3, measured(1, rows=items))
    job.finish(4, measured(1, rows=stores))
    return job


@pytest.mark.parametrize(
    ("changes", "groups"),  # two tasks read half of the rows each
    [
        ({}, 10_000),
        ({"origins": (ITEM, ITEM, ITEM)}, 1000),  # columns of the same table
        ({"origins": (ITEM, STORE, ITEM)}, 10_000),
        ({"items": 40_000, "copies": 30}, 400_000),
        ({"items": 500}, 5000),
    ],
)
def test_aggregates_first_if_there_are_few_groups(changes: Any, groups: int) -> None:
    job = run(**changes)
    assert job.operator(30).aggregates_first
    (decision,) = [d for d in job.decisions if d.kind is DecisionKind.EARLY_AGGREGATION]
    assert (decision.chosen, decision.figures["groups"]) == ("before rows are copied for each grouping set", groups)


@pytest.mark.parametrize(
    "changes",
    [
        {"origins": (ITEM, ())},  # a column of sales
        {"items": None},
        {"rows": None},
        {"rows": 10_000},
        {"items": 50_000},
        {"copies": 1},
        {"text": TEXT.replace("20 #> 30", "20 /> 21\n21 #> 30")},  # the copies have other readers
        {"text": TEXT.replace("1 -> 13", "1 #> 13")},  # the sales are not measured yet
        {"14": AggregateOperator(None)},
    ],
)
def test_aggregates_that_remain_unchanged(changes: dict[str, Any]) -> None:
    job = run(**changes)
    assert job.chosen(DecisionKind.EARLY_AGGREGATION) == []
    assert not job.operator(30).aggregates_first


def test_rows_of_an_exchanged_input_are_used() -> None:
    job = run(TEXT.replace("1 -> 13", "1 #> 13"), rows=None)
    job.finish(1, measured(32, rows=1_000_000))
    assert job.chosen(DecisionKind.EARLY_AGGREGATION) == ["before rows are copied for each grouping set"]
    (decision,) = [d for d in job.decisions if d.kind is DecisionKind.EARLY_AGGREGATION]
    assert (
        decision.reason
        == "1,000,000 rows fall into at most 10,000 groups, and 3 grouping sets would copy every row 3 times"
    )
