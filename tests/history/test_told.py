"""The decisions of a record in words, and the line that sums them up; logs of older releases are read as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.decisions import Choice, DecisionKind, DecisionLog, NodeRef, Told
from penstock.estimates import Estimate, Unit
from penstock.history.record import JobRecord
from penstock.history.summary import summary_of
from penstock.history.told import told
from penstock.told import ToldDecision, together

MIB = 1 << 20
READ = Told(
    "orders: 4 tasks, as 2 files of 90.0 MiB",
    "scan.parallelism",
    Estimate("bytes read from orders", Unit.BYTES, 90 * MIB),
)
BROADCAST = Told("orders join customer: broadcast", "a.key", not_shuffled=70 * MIB, tables=("orders", "customer"))
HIDDEN = Told("rows are shuffled into 4 partitions", is_shown=False)


def record(*made: Told, **settled: Any) -> JobRecord:
    """Return the record of a job with some decisions, the first of which is settled."""
    log = DecisionLog()
    for one in made:
        log.record(Choice(DecisionKind.BROADCAST, NodeRef(3, "Join"), "right", "it is small", told=one))
    if made:
        log.compare(0, settled.pop("came", None))
        log.settle(0, **settled)
    return JobRecord(id="a", name="nightly", started=100.0, ended=103.2, decisions=[one.as_dict() for one in log])


@pytest.mark.parametrize(
    ("words", "settled", "text"),
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
            {"came": 3 * MIB},
            (
                "orders: 4 tasks, as 2 files of 90.0 MiB. Estimate of bytes read from orders: 90.0 MiB foreseen, 3.0 MiB came "
                "(missed: 30 times less)"
            ),
        ),
    ],
)
def test_all_that_a_reader_is_told(words: Told, settled: Any, text: str) -> None:
    (one,) = told(record(words, **settled))
    assert one.text == text


@pytest.mark.parametrize(
    ("words", "settled", "is_shown"),
    [
        (BROADCAST, {}, True),
        (HIDDEN, {}, False),
        (HIDDEN, {"instead": "all in one"}, True),
        (replace(READ, is_shown=False), {"came": 80 * MIB}, False),
        (replace(READ, is_shown=False), {"came": 3 * MIB}, True),
    ],
)
def test_what_came_otherwise_is_always_shown(words: Told, settled: Any, is_shown: bool) -> None:
    assert bool(together(told(record(words, **settled)))) is is_shown


def test_logs_of_older_releases_are_told_too() -> None:
    old = {
        "kind": "broadcast",
        "subject": "3 Join",
        "chosen": "right",
        "reason": "it is small",
        "figures": {},
        "outcome": {"instead": "shuffled", "because": "no room"},
        "at": 7.0,
    }
    one = ToldDecision.of(5, old)
    assert one.text == "3 Join: right, as it is small. Instead: shuffled, because no room"
    assert (one.id, one.estimate, one.tables, one.nodes, one.is_shown) == (5, None, (), (), True)


def test_logs_of_newer_releases_are_told_too() -> None:
    made = record(READ, came=3 * MIB)
    made.decisions[0]["estimate"]["by"] = "footers"
    made.decisions[0]["weather"] = "fine"
    (one,) = told(made)
    assert one.is_missed


def test_the_summary_of_a_job() -> None:
    made = record(READ, BROADCAST, HIDDEN, came=3 * MIB)
    made.vertices = {"v1": {"tasks": 4}, "v2": {"tasks": -1}, "v3": {"tasks": 37}}
    assert str(summary_of(made, 5.1)) == (
        "about 70.0 MiB not shuffled, 41 tasks, 3.2 s (last run 5.1 s), 1 of 1 estimate missed"
    )
    assert summary_of(made).as_dict()["decisions"] == 2


def test_a_broadcast_that_was_not_made_saves_nothing() -> None:
    assert str(summary_of(record(BROADCAST, instead="customer is shuffled"))) == "3.2 s"
