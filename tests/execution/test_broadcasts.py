"""Relations of join sides: made once, and given up where they do not fit."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from penstock.decisions import Choice, DecisionKind, NodeRef
from penstock.errors import VerificationError
from penstock.execution.broadcasts import Broadcasts
from penstock.graph import JoinOperator, JoinSide, JoinType, Side
from penstock.spark import exchange
from penstock.spark.exchange import BroadcastResult
from penstock.spark.job_watch import JobWatch
from penstock.spark.jobs import StageFigures, StageRun
from tests.execution.plans import Context, Key, Plan, Results, job, plans_as_text
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


class Planned:
    """Broadcasts what was planned so, as far as tests say; `shuffled` is what is written instead."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, seen: tuple[int, int, int], answer: BaseException | None = None
    ) -> None:
        self.seen, self.answer = seen, answer
        self.shuffled: list[str] = []
        self.is_watched = False
        plans_as_text(monkeypatch)
        monkeypatch.setattr(exchange, "broadcast", self.broadcast)
        monkeypatch.setattr(exchange, "last_stage", lambda session, logical: logical)
        monkeypatch.setattr(exchange, "write", lambda session, logical: self.shuffled.append(str(logical)) or "stages")

    def broadcast(self, rows: Any, mode: Any, watch: JobWatch | None = None) -> str | None:
        done, tasks, size = self.seen
        self.is_watched = watch is not None
        if self.answer is not None:
            raise self.answer
        figures = StageFigures(7, 0, done, 0, 0, 0, 0, 0, 1.0, size)
        is_stopped = watch is not None and watch._is_enough(StageRun(7, tasks, done), figures)
        return None if is_stopped else "relation"


# What the running broadcast has given (tasks, all tasks, bytes) or why it failed, and why it is shuffled; None if not.
PLANNED: dict[str, tuple[tuple[int, int, int], BaseException | None, str | None]] = {
    "small": ((8, 8, 9 << 20), None, None),
    "larger than allowed": ((1, 100, 11 << 20), None, "1 of its 100 tasks had given 11.0 MiB, where"),
    "far larger is foreseen": (
        (25, 100, 6 << 20),
        None,
        "25 of its 100 tasks had given 6.0 MiB, so about 24.0 MiB in all, where 10.0 MiB are allowed",
    ),
    "it does not fit": ((0, 8, 0), FULL, "it could not be broadcast: java.lang.OutOfMemoryError"),
}


SUBPARTITIONS = {"larger than allowed": 283, "far larger is foreseen": 14, "it does not fit": 13}
"""Of 4 MiB each, four for a task: what is foreseen of the side that grew, or what there is memory for, and 30 MiB."""


def planned_job(hint: str | None = None) -> Context:
    right = replace(NAMED.right, source_bytes=30 << 20)
    operators = {3: replace(NAMED, left=replace(NAMED.left, hint=hint), right=right), 5: INNER}
    context = job(TEXT, operators, keys={n: {Side.LEFT: (Key("k"),)} for n in (3, 5)})
    join: Any = Plan("Join")
    context.plan.edges["1-3"] = replace(context.plan.edges["1-3"], operator=join)  # type: ignore[index]
    for node_id in (3, 5):
        context.decisions.record(Choice(DecisionKind.BROADCAST, NodeRef(node_id, "Join"), Side.LEFT, "small"))
    return context


def run_planned(context: Context) -> Any:
    session: Any = "session"
    rows: Any = Plan("rows")
    return broadcasts(context).planned(session, rows, context.graph.edge("1-3"))


@pytest.mark.parametrize("case", PLANNED)
def test_a_planned_broadcast_that_grows_is_shuffled(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    seen, answer, why = PLANNED[case]
    spark, context = Planned(monkeypatch, seen, answer), planned_job()
    found = run_planned(context)
    assert spark.is_watched
    outcomes = [one.outcome for one in context.decisions if one.kind is DecisionKind.BROADCAST]
    if why is None:
        assert (found, spark.shuffled, outcomes) == ("relation", [], [{}, {}])
    else:
        assert (found, spark.shuffled) == ("stages", [f"rows by k into {SUBPARTITIONS[case]}"])
        (decided,) = [one for one in context.decisions if one.kind is DecisionKind.SUBPARTITIONS]
        assert (decided.nodes, decided.chosen) == ((1,), SUBPARTITIONS[case])
        assert decided.reason.startswith("about " if answer is None else "at least ")  # it is foreseen, or a bound
        assert all(why in str(one["because"]) for one in outcomes)  # both joins that read it are told
        assert outcomes[0]["instead"] == "orders with items is shuffled"


@pytest.mark.parametrize("answer", [None, FULL])
def test_a_broadcast_that_the_user_asked_for(monkeypatch: pytest.MonkeyPatch, answer: BaseException | None) -> None:
    spark, context = Planned(monkeypatch, (1, 100, 99 << 20), answer), planned_job("broadcast")
    if answer is None:
        assert run_planned(context) == "relation"
    else:
        with pytest.raises(RuntimeError, match="OutOfMemory"):
            run_planned(context)
    assert (spark.is_watched, spark.shuffled) == (False, [])


def test_any_other_error_of_a_planned_broadcast(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Planned(monkeypatch, (1, 8, 0), ValueError("no such file"))
    with pytest.raises(ValueError, match="no such file"):
        run_planned(planned_job())
    assert spark.shuffled == []


def test_what_was_written_as_a_relation_is_one() -> None:
    context = two_joins()
    relations = broadcasts(context, {1: BroadcastResult(None, 7, 300, 30, 2, 2, None)})
    assert relations.is_relation(context.graph.edge("1-3"))
    assert not relations.is_relation(context.graph.edge("2-3"))  # it is not broadcast
