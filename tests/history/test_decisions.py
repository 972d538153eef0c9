"""The recorded decisions as sentences, and the summary line; logs of older releases are supported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, Explanation, NodeRef
from penstock.decisions.record import DecisionRecord, displayed_decisions
from penstock.history.record import JobRecord, VertexRecord
from tests.history.records import vertex

MIB = 1 << 20
READ = Explanation(
    "orders: 4 tasks, as 2 files of 90.0 MiB",
    "scan.parallelism",
    Estimate("bytes read from orders", Unit.BYTES, 90 * MIB),
)
BROADCAST = Explanation(
    "orders join customer: broadcast", "a.key", not_shuffled=70 * MIB, tables=("orders", "customer")
)
HIDDEN = Explanation("rows are shuffled into 4 partitions", is_shown=False)


def record(*explanations: Explanation, **settled: Any) -> JobRecord:
    """Return the record of a job with some decisions, the first of which is settled."""
    log = DecisionLog()
    for explanation in explanations:
        log.record(Choice(DecisionKind.BROADCAST, NodeRef(3, "Join"), "right", "it is small", explanation=explanation))
    if explanations:
        log.compare(0, settled.pop("actual", None))
        log.settle(0, **settled)
    return JobRecord(id="a", name="nightly", started=100.0, ended=103.2, decisions=log.records)


@pytest.mark.parametrize(
    ("explanation", "settled", "text"),
    [
        (BROADCAST, {}, "orders join customer: broadcast. Change with a.key"),
        (
            BROADCAST,
            {"instead": "customer is shuffled", "because": "no memory is left"},
            "orders join customer: broadcast. Instead: customer is shuffled, because no memory is left. Change with a.key",
        ),
        (READ, {}, "orders: 4 tasks, as 2 files of 90.0 MiB. Change with scan.parallelism"),
        (
            replace(READ, option=None),
            {"actual": 3 * MIB},
            (
                "orders: 4 tasks, as 2 files of 90.0 MiB. Estimate of bytes read from orders: 90.0 MiB estimated, 3.0 MiB actual "
                "(missed: 30 times less)"
            ),
        ),
    ],
)
def test_text_of_a_decision(explanation: Explanation, settled: Any, text: str) -> None:
    (decision,) = record(explanation, **settled).decisions
    assert decision.text == text


@pytest.mark.parametrize(
    ("explanation", "settled", "is_shown"),
    [
        (BROADCAST, {}, True),
        (HIDDEN, {}, False),
        (HIDDEN, {"instead": "a single task"}, True),
        (replace(READ, is_shown=False), {"actual": 80 * MIB}, False),
        (replace(READ, is_shown=False), {"actual": 3 * MIB}, True),
    ],
)
def test_fallbacks_are_always_shown(explanation: Explanation, settled: Any, is_shown: bool) -> None:
    assert bool(displayed_decisions(record(explanation, **settled).decisions)) is is_shown


def test_logs_of_older_releases() -> None:
    old = {
        "kind": "broadcast",
        "subject": "3 Join",
        "chosen": "right",
        "reason": "it is small",
        "figures": {},
        "outcome": {"instead": "shuffled", "because": "no room"},
        "at": 7.0,
    }
    decision = DecisionRecord.from_dict(5, old)
    assert decision.text == "3 Join: right, as it is small. Instead: shuffled, because no room"
    assert (decision.id, decision.estimate, decision.tables, decision.nodes, decision.is_shown) == (
        5,
        None,
        (),
        (),
        True,
    )


def test_logs_of_newer_releases() -> None:
    (decision,) = record(READ, actual=3 * MIB).decisions
    newer = {**decision.values, "weather": "fine", "estimate": decision.values["estimate"] | {"by": "footers"}}
    assert DecisionRecord.from_dict(0, newer).is_missed


def test_the_summary_of_a_job() -> None:
    job = record(READ, BROADCAST, HIDDEN, actual=3 * MIB)
    tasks = {"v1": 4, "v2": -1, "v3": 37}
    job.vertices = {key: VertexRecord.of(vertex(1, [], "FINISHED", tasks=count)) for key, count in tasks.items()}
    assert str(job.summary()) == "about 70.0 MiB not shuffled, 41 tasks, 3.2 s, 1 of 1 estimate missed"
    assert job.summary().as_dict()["decisions"] == 2


def test_broadcast_that_was_not_carried_out_saves_nothing() -> None:
    assert str(record(BROADCAST, instead="customer is shuffled").summary()) == "3.2 s"
