"""Decisions belong to operators, and are settled with what was really done."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from penstock.decisions import Choice, DecisionKind, DecisionLog, NameRef, NodeRef, Told, VertexRef
from tests.logged import messages

JOIN = NodeRef(3, "Join")


@pytest.fixture
def log() -> Any:
    kept = DecisionLog()
    for kind, chosen, subject in (
        (DecisionKind.BROADCAST, "not the left side", JOIN),
        (DecisionKind.BROADCAST, "right", JOIN),
        (DecisionKind.BROADCAST, "right", NodeRef(4, "Join")),
        (DecisionKind.SKEW, "not split", JOIN),
        (DecisionKind.VERTEX_PARALLELISM, 5, VertexRef("v1", "Calc -> Join", (2, 3))),
        (DecisionKind.SHARING, "kept", NameRef("orders")),
    ):
        kept.record(Choice(kind, subject, chosen, "reason"))
    return kept


def test_decisions_of_operators(log: Any) -> None:
    assert [decision.chosen for decision in log.of((3, 9))] == ["not the left side", "right", "not split", 5]
    assert [decision.chosen for decision in log.of((3,), DecisionKind.BROADCAST)] == ["not the left side", "right"]
    assert [decision.chosen for decision in log.of((4,))] == ["right"]
    assert log.of((7,)) == []


def test_decisions_are_numbered_and_settled_by_their_numbers(log: Any) -> None:
    assert [decision.id for decision in log] == list(range(6))
    log.settle(2, tasks=3, rows=None)
    log.settle(2, rows=7)
    assert [dict(decision.outcome) for decision in log] == [{}, {}, {"tasks": 3, "rows": 7}, {}, {}, {}]


@pytest.mark.parametrize(
    ("subject", "text", "called", "nodes"),
    [
        (JOIN, "3 Join", "Join", (3,)),
        (VertexRef("v2", "Calc -> Join", (2, 3)), "v2 Calc -> Join", "Join", (2, 3)),
        (VertexRef("v2", "Calc -> Join", (2, 3), task=4), "v2 Calc -> Join, task 4", "Join, task 4", (2, 3)),
        (NameRef("orders"), "orders", "orders", ()),
        (NameRef("orders", (1,)), "orders", "orders", (1,)),
    ],
)
def test_subjects_as_people_and_records_call_them(subject: Any, text: str, called: str, nodes: Any) -> None:
    decision = DecisionLog().record(Choice(DecisionKind.SKEW, subject, "left", "it is large", {"bytes": 7}))
    assert str(decision) == f"{called}: left, as it is large"
    assert json.loads(json.dumps(decision.as_dict())) == {
        "kind": "skew",
        "subject": text,
        "chosen": "left",
        "reason": "it is large",
        "figures": {"bytes": 7},
        "outcome": {},
        "at": decision.at,
        "nodes": list(nodes),
        "sentence": f"{called}: left, as it is large",
        "place": "",
        "option": None,
        "shown": True,
        "estimate": None,
        "not_shuffled": None,
        "tables": [],
    }


def test_what_came_otherwise_settles_the_decision_that_is_meant(log: Any) -> None:
    log.came_otherwise(DecisionKind.BROADCAST, JOIN, "shuffled", "no memory", lambda one: one.chosen == "right")
    assert [dict(decision.outcome) for decision in log] == [
        {},
        {"instead": "shuffled", "because": "no memory"},
        {},
        {},
        {},
        {},
    ]


def test_the_log_tells_what_came_otherwise_as_the_page_does(log: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = Told("orders join users on k: broadcast instead of shuffle, as users is 3 MiB")
    log.record(Choice(DecisionKind.BROADCAST, NodeRef(12, "Join"), "right", "it is small", told=told))
    with caplog.at_level(logging.INFO, "penstock"):
        log.came_otherwise(DecisionKind.BROADCAST, NodeRef(12, "Join"), "users is shuffled", "no memory is left")
        log.came_otherwise(DecisionKind.SKEW, NodeRef(12, "Join"), "whole", "it is no join")
    assert messages(caplog) == [
        f"{told.sentence}. Instead: users is shuffled, because no memory is left",
        "Join: whole, as it is no join",
    ]


def test_what_came_otherwise_than_nobody_decided_is_recorded(log: Any) -> None:
    log.came_otherwise(DecisionKind.SKEW, NodeRef(8, "Join"), "whole", "it is no join")
    *_, last = log
    assert (last.kind, str(last.subject), last.chosen, last.reason, last.nodes) == (
        DecisionKind.SKEW,
        "8 Join",
        "whole",
        "it is no join",
        (8,),
    )
