"""Broadcast relations of join sides: built once, and replaced by a shuffle if they do not fit."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.decisions.log import Choice, DecisionKind, NodeRef
from penstock.errors import VerificationError
from penstock.execution.broadcasts import Broadcasts
from penstock.graph import JoinOperator, JoinSide, JoinType, Side
from penstock.spark.run import exchange, verification
from penstock.spark.run.exchange import BroadcastResult
from penstock.spark.run.jobs import JobWatch, StageFigures, StageRun
from tests.execution.plans import Context, Key, Plan, Results, job, plans_as_text
from tests.scheduler.results import written
from tests.support.logged import messages

INNER = JoinOperator(JoinType.INNER)
NAMED = JoinOperator(JoinType.INNER, left=JoinSide(tables=("orders", "items")), right=JoinSide(tables=("users",)))
TEXT = "1 *> 3\n2 -> 3\n1 *> 5\n4 -> 5"
"""A side that two joins read."""
FULL = RuntimeError("java.lang.OutOfMemoryError: not enough memory to build and broadcast the table")


def two_joins(first: str = "k", second: str = "k", *, verify: bool = False) -> Context:
    keys = {3: {Side.LEFT: (Key(first),)}, 5: {Side.LEFT: (Key(second),)}}
    context = job(TEXT, {3: NAMED, 5: INNER}, keys=keys, verify=verify)
    for node_id, side in ((3, Side.LEFT), (3, Side.RIGHT), (5, Side.LEFT)):
        context.decisions.record(Choice(DecisionKind.BROADCAST, NodeRef(node_id, "Join"), side, "small"))
    return context


class Spark:
    """Builds relations, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: BaseException | None = None, rows: int = 100) -> None:
        self.builds: list[Any] = []
        self.answer, self.rows = answer, rows
        monkeypatch.setattr(exchange, "broadcast_staged", self.broadcast)

    def broadcast(self, *args: Any) -> BroadcastResult:
        self.builds.append(args[-2:])
        time.sleep(0.02)  # long enough for concurrent calls
        if self.answer is not None:
            raise self.answer
        return BroadcastResult(None, self.rows, 300, 30, 2, 2, None)


def broadcasts(context: Context, results: dict[int, Any] | None = None) -> Broadcasts:
    store: Any = Results(results or {})
    return Broadcasts(context, store)


@pytest.mark.parametrize(("second", "builds"), [("k", 1), ("j", 2)])
def test_joins_by_the_same_keys_share_a_relation(monkeypatch: pytest.MonkeyPatch, second: str, builds: int) -> None:
    spark, context = Spark(monkeypatch), two_joins(second=second)
    relations, result = broadcasts(context), written(8, 8, 8)
    edges = [context.graph.edge(name) for name in ("1-3", "1-5")]
    assert not any(map(relations.is_relation, edges))
    with ThreadPoolExecutor(4) as pool:
        distinct = set(pool.map(id, pool.map(lambda edge: relations.relation(edge, result), edges * 8)))
    assert len(spark.builds) == len(distinct) == builds
    assert all(map(relations.is_relation, edges))
    assert {len(ranges) for _, ranges in spark.builds} == {2}  # only a few tasks read the rows
    relations.release()
    assert not any(map(relations.is_relation, edges))


def test_a_relation_that_does_not_fit_falls_back_to_a_shuffle(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spark, context = Spark(monkeypatch, FULL), two_joins()
    relations = broadcasts(context)
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(2):
            assert relations.relation(context.graph.edge("1-3"), written(8)) is None
    assert messages(caplog) == [
        "users join orders with items: orders with items could not be broadcast and is shuffled"
    ]
    assert len(spark.builds) == 1  # it is not retried
    assert not relations.is_relation(context.graph.edge("1-3"))
    outcomes = {(decision.nodes, decision.chosen): decision.outcome.get("instead") for decision in context.decisions}
    assert outcomes == {((3,), "left"): "orders with items is shuffled", ((3,), "right"): None, ((5,), "left"): None}
    (reason,) = {decision.outcome["because"] for decision in context.decisions if decision.outcome}
    assert "OutOfMemoryError" in str(reason)


def test_other_errors_fail_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    Spark(monkeypatch, ValueError("no such file"))
    context = two_joins()
    with pytest.raises(ValueError, match="no such file"):
        broadcasts(context).relation(context.graph.edge("1-3"), written(8))


@pytest.mark.parametrize(
    ("verify", "relation", "counted", "is_lost"),
    [
        (True, 100, None, False),
        (True, 99, 100, True),
        (True, 99, 99, False),  # Spark counted the rows of a repeated task twice
        (False, 99, 100, False),
    ],
)
def test_a_relation_must_have_all_rows(
    monkeypatch: pytest.MonkeyPatch, verify: bool, relation: int, counted: int | None, is_lost: bool
) -> None:
    Spark(monkeypatch, rows=relation)
    monkeypatch.setattr(verification, "count_rows", lambda rows: counted)
    context = two_joins(verify=verify)
    relations, edge = broadcasts(context), context.graph.edge("1-3")
    result = replace(written(8), plan=SimpleNamespace(rows=lambda: "rows"))
    if is_lost:
        with pytest.raises(VerificationError, match="the broadcast 1-3"):
            relations.relation(edge, result)
    else:
        assert relations.relation(edge, result) is not None


class Planned:
    """Runs planned broadcasts with given progress; `shuffled` is what is written instead."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, progress: tuple[int, int, int], answer: BaseException | None = None
    ) -> None:
        self.progress, self.answer = progress, answer
        self.shuffled: list[str] = []
        self.is_watched = False
        plans_as_text(monkeypatch)
        monkeypatch.setattr(exchange, "broadcast", self.broadcast)
        monkeypatch.setattr(exchange, "run_for_broadcast", lambda session, logical: logical)
        monkeypatch.setattr(exchange, "write", lambda session, logical: self.shuffled.append(str(logical)) or "stages")

    def broadcast(self, rows: Any, mode: Any, watch: JobWatch | None = None) -> str | None:
        done, tasks, size = self.progress
        self.is_watched = watch is not None
        if self.answer is not None:
            raise self.answer
        figures = StageFigures(7, 0, done, 0, 0, 0, 0, 0, 1.0, size)
        is_stopped = watch is not None and watch._is_too_large(StageRun(7, tasks, done), figures)
        return None if is_stopped else "relation"


# The progress (tasks done, all tasks, bytes) or the error, and the reason for the fallback; None if it is broadcast.
PLANNED: dict[str, tuple[tuple[int, int, int], BaseException | None, str | None]] = {
    "small": ((8, 8, 9 << 20), None, None),
    "larger than allowed": ((1, 100, 11 << 20), None, "1 of its 100 tasks had returned 11.0 MiB (limit 10.0 MiB)"),
    "estimated to be far larger": (
        (25, 100, 6 << 20),
        None,
        "25 of its 100 tasks had returned 6.0 MiB, an estimated 24.0 MiB in all (limit 10.0 MiB)",
    ),
    "it does not fit": ((0, 8, 0), FULL, "it could not be broadcast: java.lang.OutOfMemoryError"),
}


SUBPARTITIONS = {"larger than allowed": 283, "estimated to be far larger": 14, "it does not fit": 13}
"""Four per task, so 4 MiB each: for the estimated size of this side, or the memory limit, plus 30 MiB of the other."""


def planned_job(hint: str | None = None) -> Context:
    right = replace(NAMED.right, source_bytes=30 << 20)
    operators = {3: replace(NAMED, left=replace(NAMED.left, hint=hint), right=right), 5: INNER}
    context = job(TEXT, operators, keys={n: {Side.LEFT: (Key("k"),)} for n in (3, 5)})
    join: Any = Plan("Join")
    context.plan.edges["1-3"] = replace(context.plan.edges["1-3"], operator=join)
    for node_id in (3, 5):
        context.decisions.record(Choice(DecisionKind.BROADCAST, NodeRef(node_id, "Join"), Side.LEFT, "small"))
    return context


def run_and_broadcast(context: Context) -> Any:
    session: Any = "session"
    rows: Any = Plan("rows")
    return broadcasts(context).run_and_broadcast(session, rows, context.graph.edge("1-3"))


@pytest.mark.parametrize("case", PLANNED)
def test_a_planned_broadcast_that_grows_is_shuffled(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    progress, answer, reason = PLANNED[case]
    spark, context = Planned(monkeypatch, progress, answer), planned_job()
    result = run_and_broadcast(context)
    assert spark.is_watched
    outcomes = [decision.outcome for decision in context.decisions if decision.kind is DecisionKind.BROADCAST]
    if reason is None:
        assert (result, spark.shuffled, outcomes) == ("relation", [], [{}, {}])
    else:
        assert (result, spark.shuffled) == ("stages", [f"rows by k into {SUBPARTITIONS[case]}"])
        (subpartitions,) = [d for d in context.decisions if d.kind is DecisionKind.SUBPARTITIONS]
        assert (subpartitions.nodes, subpartitions.chosen) == ((1,), SUBPARTITIONS[case])
        assert subpartitions.reason.startswith("about " if answer is None else "at least ")
        assert all(reason in str(outcome["because"]) for outcome in outcomes)  # for both joins that read it
        assert outcomes[0]["instead"] == "orders with items is shuffled"


@pytest.mark.parametrize("answer", [None, FULL])
def test_a_broadcast_by_a_user_hint_is_never_stopped(
    monkeypatch: pytest.MonkeyPatch, answer: BaseException | None
) -> None:
    spark, context = Planned(monkeypatch, (1, 100, 99 << 20), answer), planned_job("broadcast")
    if answer is None:
        assert run_and_broadcast(context) == "relation"
    else:
        with pytest.raises(RuntimeError, match="OutOfMemory"):
            run_and_broadcast(context)
    assert (spark.is_watched, spark.shuffled) == (False, [])


def test_any_other_error_of_a_planned_broadcast(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Planned(monkeypatch, (1, 8, 0), ValueError("no such file"))
    with pytest.raises(ValueError, match="no such file"):
        run_and_broadcast(planned_job())
    assert spark.shuffled == []


def test_a_broadcast_result_is_a_relation() -> None:
    context = two_joins()
    relations = broadcasts(context, {1: BroadcastResult(None, 7, 300, 30, 2, 2, None)})
    assert relations.is_relation(context.graph.edge("1-3"))
    assert not relations.is_relation(context.graph.edge("2-3"))  # it is not broadcast
