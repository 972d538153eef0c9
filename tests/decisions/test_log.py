"""Decisions are recorded per operator and settled with their outcome."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from penstock.decisions.log import Choice, DecisionKind, DecisionLog, Explanation, NameRef, NodeRef, VertexRef
from tests.support.logged import messages

JOIN = NodeRef(3, "Join")


@pytest.fixture
def log() -> Any:
    decisions = DecisionLog()
    for kind, chosen, subject in (
        (DecisionKind.BROADCAST, "not the left side", JOIN),
        (DecisionKind.BROADCAST, "right", JOIN),
        (DecisionKind.BROADCAST, "right", NodeRef(4, "Join")),
        (DecisionKind.SKEW, "not split", JOIN),
        (DecisionKind.VERTEX_PARALLELISM, 5, VertexRef("v1", "Calc -> Join", (2, 3))),
        (DecisionKind.SHARING, "shared", NameRef("orders")),
    ):
        decisions.record(Choice(kind, subject, chosen, "reason"))
    return decisions


def test_numbers_have_the_noun_of_their_decision() -> None:
    kinds = (DecisionKind.VERTEX_PARALLELISM, DecisionKind.SUBPARTITIONS)
    assert [str(Choice(kind, NameRef("orders"), 4, "it has 64 MiB")) for kind in kinds] == [
        "orders: 4 tasks, as it has 64 MiB",
        "orders: 4 subpartitions, as it has 64 MiB",
    ]


def test_decisions_are_selected_by_operator_and_kind(log: Any) -> None:
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
    ("subject", "text", "name", "nodes"),
    [
        (JOIN, "3 Join", "Join", (3,)),
        (VertexRef("v2", "Calc -> Join", (2, 3)), "v2 Calc -> Join", "Join", (2, 3)),
        (VertexRef("v2", "Calc -> Join", (2, 3), task=4), "v2 Calc -> Join, task 4", "Join, task 4", (2, 3)),
        (NameRef("orders"), "orders", "orders", ()),
        (NameRef("orders", (1,)), "orders", "orders", (1,)),
    ],
)
def test_the_subject_of_a_decision_has_a_name_and_nodes(subject: Any, text: str, name: str, nodes: Any) -> None:
    decision = DecisionLog().record(Choice(DecisionKind.SKEW, subject, "left", "it is large", {"bytes": 7}))
    assert str(decision) == f"{name}: left, as it is large"
    assert json.loads(json.dumps(decision.as_dict())) == {
        "kind": "skew",
        "subject": text,
        "chosen": "left",
        "reason": "it is large",
        "figures": {"bytes": 7},
        "outcome": {},
        "at": decision.at,
        "nodes": list(nodes),
        "sentence": f"{name}: left, as it is large",
        "place": "",
        "option": None,
        "shown": True,
        "estimate": None,
        "not_shuffled": None,
        "tables": [],
    }


def test_a_fallback_is_the_outcome_of_the_selected_decision(log: Any) -> None:
    log.record_fallback(
        DecisionKind.BROADCAST, JOIN, "shuffled", "no memory", lambda decision: decision.chosen == "right"
    )
    assert [dict(decision.outcome) for decision in log] == [
        {},
        {"instead": "shuffled", "because": "no memory"},
        {},
        {},
        {},
        {},
    ]


def test_a_fallback_is_logged(log: Any, caplog: pytest.LogCaptureFixture) -> None:
    explanation = Explanation("orders join users on k: broadcast instead of shuffle, as users is 3 MiB")
    log.record(Choice(DecisionKind.BROADCAST, NodeRef(12, "Join"), "right", "it is small", explanation=explanation))
    with caplog.at_level(logging.INFO, "penstock"):
        log.record_fallback(DecisionKind.BROADCAST, NodeRef(12, "Join"), "users is shuffled", "no memory is left")
        log.record_fallback(DecisionKind.SKEW, NodeRef(12, "Join"), "whole", "it is not a join")
    assert messages(caplog) == [
        f"{explanation.sentence}. Instead: users is shuffled, because no memory is left",
        "Join: whole, as it is not a join",
    ]


def test_a_fallback_without_a_decision_is_recorded(log: Any) -> None:
    log.record_fallback(DecisionKind.SKEW, NodeRef(8, "Join"), "whole", "it is not a join")
    *_, last = log
    assert (last.kind, str(last.subject), last.chosen, last.reason, last.nodes) == (
        DecisionKind.SKEW,
        "8 Join",
        "whole",
        "it is not a join",
        (8,),
    )
