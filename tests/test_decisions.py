"""Decisions belong to operators, and are settled with what was really done."""

import pytest

from penstock.decisions import Decision, DecisionKind, DecisionLog


@pytest.fixture
def log():
    kept = DecisionLog()
    for kind, chosen, nodes in (
        (DecisionKind.BROADCAST, "not the left side", (3,)),
        (DecisionKind.BROADCAST, "right", (3,)),
        (DecisionKind.BROADCAST, "right", (4,)),
        (DecisionKind.SKEW, "not split", (3,)),
        (DecisionKind.VERTEX_PARALLELISM, 5, (2, 3)),
        (DecisionKind.SHARING, "kept", ()),
    ):
        kept.record(Decision(kind, "subject", chosen, "reason", nodes=nodes, at=1.0))
    return kept


def test_decisions_of_operators(log):
    assert [decision.chosen for decision in log.of((3, 9))] == ["not the left side", "right", "not split", 5]
    assert [decision.chosen for decision in log.of((3,), DecisionKind.BROADCAST)] == ["not the left side", "right"]
    assert [decision.chosen for decision in log.of((4,))] == ["right"]
    assert log.of((7,)) == []


def test_what_came_otherwise_settles_the_decision_that_is_meant(log):
    log.came_otherwise(DecisionKind.BROADCAST, 3, "Join", "shuffled", "no memory", lambda one: one.chosen == "right")
    assert [dict(decision.outcome) for decision in log] == [
        {},
        {"instead": "shuffled", "because": "no memory"},
        {},
        {},
        {},
        {},
    ]


def test_what_came_otherwise_than_nobody_decided_is_recorded(log):
    log.came_otherwise(DecisionKind.SKEW, 8, "Join", "whole", "it is no join")
    *_, last = log
    assert (last.kind, last.subject, last.chosen, last.reason, last.nodes) == (
        DecisionKind.SKEW,
        "8 Join",
        "whole",
        "it is no join",
        (8,),
    )
