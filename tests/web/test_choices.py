"""What was decided differently: what was done counts, not the figures that it was decided from."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.told import ToldDecision
from penstock.web.choices import choices
from tests.web.test_findings import decision, estimate

SMALL = "orders join users on k: broadcast instead of shuffle, as users is 3.0 MiB (limit 10.0 MiB)"
SMALLER = "orders join users on k: broadcast instead of shuffle, as users is 2.9 MiB (limit 10.0 MiB)"
SHORT = "broadcast instead of shuffle"
LARGE = "orders join users on k: users is not broadcast, as it is 12.0 MiB (limit 10.0 MiB)"


def broadcast(sentence: str, *nodes: str, **more: Any) -> ToldDecision:
    return decision("broadcast", sentence, nodes=nodes or ("1",), **more)


CASES: dict[str, tuple[list[ToldDecision], list[ToldDecision], list[str]]] = {
    "nothing": ([], [], []),
    "the same from other figures": ([broadcast(SMALL)], [broadcast(SMALLER)], []),
    "a broadcast that is not made any more": (
        [broadcast(SMALL)],
        [broadcast(LARGE)],
        [f"now: {LARGE}; before: {SHORT}"],
    ),
    "the other side of a join": (
        [decision("broadcast", "a join b on x: b is broadcast, as it is small", nodes=("1",), tables=("a", "b"))],
        [decision("broadcast", "b join a on x: a is broadcast, as it is small", nodes=("4",), tables=("b", "a"))],
        ["now: b join a on x: a is broadcast, as it is small; before: a join b on x: b is broadcast"],
    ),
    "a broadcast that is gone": ([broadcast(SMALL)], [], [f"no longer: {SMALL}"]),
    "a broadcast that is new": ([], [broadcast(SMALL)], [f"now: {SMALL}"]),
    "numbers of tasks": (
        [decision("source parallelism", "lineitem: 24 tasks, as it is large")],
        [decision("source parallelism", "lineitem: 1 task, as it is large")],
        [],
    ),
    "numbers of tasks of which one missed": (
        [decision("source parallelism", "lineitem: 24 tasks")],
        [decision("source parallelism", "lineitem: 23 tasks", estimate=estimate("rows", 10, 1000, 100.0))],
        [],
    ),
    "numbers of partitions": (
        [decision("subpartitions", "rows are shuffled into 4 partitions", is_shown=False)],
        [decision("subpartitions", "rows are shuffled into 1 partition")],
        [],
    ),
    "tasks that came otherwise": (
        [decision("source parallelism", "lineitem: 24 tasks", nodes=("1",))],
        [decision("source parallelism", "lineitem: 24 tasks", nodes=("1",), instead="all in one")],
        ["now: lineitem: 24 tasks"],
    ),
    "what was hidden before": ([broadcast(SMALL, is_shown=False)], [broadcast(SMALLER)], []),
    "what is always hidden": ([broadcast(SMALL, is_shown=False)], [], []),
    "a plan with other numbers of nodes": ([broadcast(SMALL, "7")], [broadcast(SMALLER, "12")], []),
    "several of one join, of which one is new": (
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
    "parts that are kept": (
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
def test_what_is_told(case: str) -> None:
    old, new, expected = CASES[case]
    assert [str(one) for one in choices(old, new)] == expected


@pytest.mark.parametrize(
    ("old_ended", "new_ended", "expected"),
    [
        (True, True, ["no longer: a", "now: b"]),
        (True, False, ["now: b"]),
        (False, True, ["no longer: a"]),
        (False, False, []),
    ],
)
def test_a_run_that_stopped_before_may_have_decided_the_same_later(
    old_ended: bool, new_ended: bool, expected: list[str]
) -> None:
    found = choices([broadcast("a", "1")], [broadcast("b", "2")], old_ended=old_ended, new_ended=new_ended)
    assert [str(one) for one in found] == expected
