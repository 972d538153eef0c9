"""Differences between decisions: actions are compared, but not the figures behind them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.record import DecisionRecord
from penstock.web.comparison import differing_decisions
from tests.web.test_findings import decision, estimate

SMALL = "orders join users on k: broadcast instead of shuffle, as users is 3.0 MiB (limit 10.0 MiB)"
SMALLER = "orders join users on k: broadcast instead of shuffle, as users is 2.9 MiB (limit 10.0 MiB)"
SHORT = "broadcast instead of shuffle"
LARGE = "orders join users on k: users is not broadcast, as it is 12.0 MiB (limit 10.0 MiB)"


def broadcast(sentence: str, *nodes: str, **more: Any) -> DecisionRecord:
    return decision("broadcast", sentence, nodes=nodes or ("1",), **more)


CASES: dict[str, tuple[list[DecisionRecord], list[DecisionRecord], list[str]]] = {
    "nothing": ([], [], []),
    "the same from other figures": ([broadcast(SMALL)], [broadcast(SMALLER)], []),
    "a broadcast that became a shuffle": (
        [broadcast(SMALL)],
        [broadcast(LARGE)],
        [f"now: {LARGE}; before: {SHORT}"],
    ),
    "the other side of a join": (
        [decision("broadcast", "a join b on x: b is broadcast, as it is small", nodes=("1",), tables=("a", "b"))],
        [decision("broadcast", "b join a on x: a is broadcast, as it is small", nodes=("4",), tables=("b", "a"))],
        ["now: b join a on x: a is broadcast, as it is small; before: a join b on x: b is broadcast"],
    ),
    "a removed broadcast": ([broadcast(SMALL)], [], [f"no longer: {SMALL}"]),
    "a new broadcast": ([], [broadcast(SMALL)], [f"now: {SMALL}"]),
    "numbers of tasks": (
        [decision("source parallelism", "lineitem: 24 tasks, as it is large")],
        [decision("source parallelism", "lineitem: 1 task, as it is large")],
        [],
    ),
    "numbers of tasks with a wrong estimate": (
        [decision("source parallelism", "lineitem: 24 tasks")],
        [decision("source parallelism", "lineitem: 23 tasks", estimate=estimate("rows", 10, 1000, 100.0))],
        [],
    ),
    "numbers of partitions": (
        [decision("subpartitions", "rows are shuffled into 4 partitions", is_shown=False)],
        [decision("subpartitions", "rows are shuffled into 1 partition")],
        [],
    ),
    "tasks with a fallback": (
        [decision("source parallelism", "lineitem: 24 tasks", nodes=("1",))],
        [decision("source parallelism", "lineitem: 24 tasks", nodes=("1",), instead="a single task")],
        ["now: lineitem: 24 tasks"],
    ),
    "a decision that was hidden before": ([broadcast(SMALL, is_shown=False)], [broadcast(SMALLER)], []),
    "a decision that is always hidden": ([broadcast(SMALL, is_shown=False)], [], []),
    "a plan with other numbers of nodes": ([broadcast(SMALL, "7")], [broadcast(SMALLER, "12")], []),
    "several decisions for a join, one of them new": (
        [broadcast(SMALL)],
        [broadcast(LARGE), broadcast(SMALLER)],
        [f"now: {LARGE}"],
    ),
    "other tables": (
        [broadcast("orders_2024 is broadcast, as it is small")],
        [broadcast("orders_2025 is broadcast, as it is small")],
        ["now: orders_2025 is broadcast, as it is small; before: orders_2024 is broadcast"],
    ),
    "more or fewer partitions split": (
        [decision("skew", "a join b: 1 of 20 partitions of a are split, as the largest has 5 GiB")],
        [decision("skew", "a join b: 2 of 24 partitions of a are split, as the largest has 4 GiB")],
        [],
    ),
    "selectivities": (
        [decision("join order", "rows are joined with item (keeps 0.1%) first, then with date_dim (keeps 93%)")],
        [decision("join order", "rows are joined with item (keeps 12.5%) first, then with date_dim (keeps 9%)")],
        [],
    ),
    "broadcasts, joins and skew come first": (
        [],
        [decision(kind, kind) for kind in ("exchange", "sharing", "skew", "join order", "join algorithm", "broadcast")],
        [f"now: {kind}" for kind in ("broadcast", "join algorithm", "join order", "skew", "exchange", "sharing")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_reported_differences(case: str) -> None:
    old, new, expected = CASES[case]
    assert [str(difference) for difference in differing_decisions(old, new)] == expected


@pytest.mark.parametrize(
    ("old_finished", "new_finished", "expected"),
    [
        (True, True, ["no longer: a", "now: b"]),
        (True, False, ["now: b"]),
        (False, True, ["no longer: a"]),
        (False, False, []),
    ],
)
def test_missing_decisions_of_an_unfinished_run_are_not_reported(
    old_finished: bool, new_finished: bool, expected: list[str]
) -> None:
    differences = differing_decisions(
        [broadcast("a", "1")], [broadcast("b", "2")], old_finished=old_finished, new_finished=new_finished
    )
    assert [str(difference) for difference in differences] == expected
