"""Relations of join sides: made once, and given up where they do not fit."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.decisions import Choice, DecisionKind, NodeRef
from penstock.errors import VerificationError
from penstock.execution.broadcasts import Broadcasts
from penstock.graph import JoinOperator, JoinSide, JoinType, Side
from penstock.spark import exchange
from penstock.spark.exchange import BroadcastResult
from tests.execution.plans import Context, Key, Results, job
from tests.logged import messages
from tests.scheduler.results import written

INNER = JoinOperator(JoinType.INNER)
NAMED = JoinOperator(JoinType.INNER, left=JoinSide(tables=("orders", "items")), right=JoinSide(tables=("users",)))
TEXT = "1 *> 3\n2 -> 3\n1 *> 5\n4 -> 5"
"""One side that two joins read."""
FULL = RuntimeError("java.lang.OutOfMemoryError: not enough memory to build and broadcast the table")


def two_joins(first: str = "k", second: str = "k", *, verify: bool = False) -> Context:
    keys = {3: {Side.LEFT: (Key(first),)}, 5: {Side.LEFT: (Key(second),)}}
    context = job(TEXT, {3: NAMED, 5: INNER}, keys=keys, verify=verify)
    for node_id, side in ((3, Side.LEFT), (3, Side.RIGHT), (5, Side.LEFT)):
        context.decisions.record(Choice(DecisionKind.BROADCAST, NodeRef(node_id, "Join"), side, "small"))
    return context


class Spark:
    """Makes relations, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: BaseException | None = None, rows: int = 100) -> None:
        self.made: list[Any] = []
        self.answer, self.rows = answer, rows
        monkeypatch.setattr(exchange, "broadcast_staged", self.broadcast)

    def broadcast(self, *given: Any) -> BroadcastResult:
        self.made.append(given[-2:])
        time.sleep(0.02)  # long enough for others to ask meanwhile
        if self.answer is not None:
            raise self.answer
        return BroadcastResult(None, self.rows, 300, 30, 2, 2, None)


def broadcasts(context: Context, results: dict[int, Any] | None = None) -> Broadcasts:
    found: Any = Results(results or {})
    return Broadcasts(context, found)


@pytest.mark.parametrize(("second", "made"), [("k", 1), ("j", 2)])
def test_joins_by_the_same_keys_share_a_relation(monkeypatch: pytest.MonkeyPatch, second: str, made: int) -> None:
    spark, context = Spark(monkeypatch), two_joins(second=second)
    relations, result = broadcasts(context), written(8, 8, 8)
    edges = [context.graph.edge(name) for name in ("1-3", "1-5")]
    assert not any(map(relations.is_relation, edges))
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(id, pool.map(lambda edge: relations.relation(edge, result), edges * 8)))
    assert len(spark.made) == len(found) == made
    assert all(map(relations.is_relation, edges))
    assert {len(ranges) for _, ranges in spark.made} == {2}  # few tasks read it
    relations.release()
    assert not any(map(relations.is_relation, edges))


def test_one_that_does_not_fit_is_shuffled_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spark, context = Spark(monkeypatch, FULL), two_joins()
    relations = broadcasts(context)
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(2):
            assert relations.relation(context.graph.edge("1-3"), written(8)) is None
    assert messages(caplog) == [
        "users join orders with items: orders with items could not be broadcast, and is shuffled"
    ]
    assert len(spark.made) == 1  # it is not tried again
    assert not relations.is_relation(context.graph.edge("1-3"))
    said = {(one.nodes, one.chosen): one.outcome.get("instead") for one in context.decisions}
    assert said == {((3,), "left"): "orders with items is shuffled", ((3,), "right"): None, ((5,), "left"): None}
    (why,) = {one.outcome["because"] for one in context.decisions if one.outcome}
    assert "OutOfMemoryError" in str(why)


def test_any_other_error_is_the_job_s(monkeypatch: pytest.MonkeyPatch) -> None:
    Spark(monkeypatch, ValueError("no such file"))
    context = two_joins()
    with pytest.raises(ValueError, match="no such file"):
        broadcasts(context).relation(context.graph.edge("1-3"), written(8))


@pytest.mark.parametrize(
    ("verify", "relation", "counted", "is_lost"),
    [
        (True, 100, None, False),
        (True, 99, 100, True),
        (True, 99, 99, False),  # Spark had counted the rows of a task that ran again
        (False, 99, 100, False),
    ],
)
def test_a_relation_has_all_rows(
    monkeypatch: pytest.MonkeyPatch, verify: bool, relation: int, counted: int | None, is_lost: bool
) -> None:
    Spark(monkeypatch, rows=relation)
    monkeypatch.setattr(exchange, "count_rows", lambda result: counted)
    context = two_joins(verify=verify)
    relations, edge = broadcasts(context), context.graph.edge("1-3")
    if is_lost:
        with pytest.raises(VerificationError, match="the broadcast 1-3"):
            relations.relation(edge, written(8))
    else:
        assert relations.relation(edge, written(8)) is not None


def test_what_was_written_as_a_relation_is_one() -> None:
    context = two_joins()
    relations = broadcasts(context, {1: BroadcastResult(None, 7, 300, 30, 2, 2, None)})
    assert relations.is_relation(context.graph.edge("1-3"))
    assert not relations.is_relation(context.graph.edge("2-3"))  # it is not broadcast
