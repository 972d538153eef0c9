"""Keys of finished join sides: collected once for all filters, and the fallbacks if they cannot be collected."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.decisions.log import Choice, DecisionKind, NodeRef
from penstock.errors import VerificationError
from penstock.execution.dynamic_filters import DynamicFilters
from penstock.graph import CalcOperator, DynamicFilterRef, FilterPath, JoinInput, JoinOperator, JoinType, Side
from penstock.optimizer.dynamic_filtering import JOIN_FIGURE, SIDE_FIGURE
from penstock.planner.plan import FilterTarget, SparkFilterPath, WriteKind
from penstock.spark.plans import catalyst
from penstock.spark.run import filters
from penstock.spark.run.exchange import BroadcastResult
from penstock.spark.run.filters import KeySet
from tests.execution.plans import Context, Key, Plan, Results, job
from tests.scheduler.results import Written, written

# Node 3 joins node 1, its left side, with node 2; node 2 and the source 4 are filtered by the keys of node 1.
TEXT = "1 #> 3\n4 -> 2\n2 #> 3"
LEFT = JoinInput(3, Side.LEFT)
RELATION: Any = None
"""Stands for Spark's relation."""


def context(*, verify: bool = False, cheap: bool = False, children: dict[str, str] | None = None) -> Context:
    targets = (4, 2)
    path = FilterPath(Side.RIGHT, targets, LEFT)
    top: Any = Plan("n")
    planned = SparkFilterPath(
        tuple(FilterTarget(node_id, top, ("#1",)) for node_id in targets), (Key("k"),), (Key("j"),), ("#9",)
    )
    ref = DynamicFilterRef(3, 0)
    context = job(
        TEXT,
        {3: JoinOperator(JoinType.INNER, filters=(path,)), 2: CalcOperator(is_cheap=cheap)},
        sources=[4],
        paths={3: (planned,)},
        filters={4: (ref,)} if cheap else {4: (ref,), 2: (ref,)},
        verify=verify,
        children=children,
    )
    figures = {JOIN_FIGURE: 3, SIDE_FIGURE: Side.LEFT}
    for node_id in (2, 4):
        decision = Choice(DecisionKind.DYNAMIC_FILTER, NodeRef(node_id, f"n{node_id}"), "keys", "few", figures)
        context.decisions.record(decision)
    return context


class Spark:
    """Returns keys, and records how they were collected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: KeySet | Exception | None = None) -> None:
        self.collected: list[str] = []
        self.answer = KeySet(100) if answer is None else answer

        def collect(how: str) -> KeySet:
            self.collected.append(how)
            time.sleep(0.02)  # long enough for concurrent calls
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        monkeypatch.setattr(filters, "collect_keys", lambda *_: collect("query"))
        monkeypatch.setattr(filters, "collect_relation_keys", lambda *_: collect("relation"))
        monkeypatch.setattr(filters, "might_contain", lambda *args: f"might contain {', '.join(args[-1])}")
        monkeypatch.setattr(filters, "source_conditions", lambda *args: [Key(f"{args[-1][0]} in (1, 2)")])
        monkeypatch.setattr(catalyst, "rebind", lambda *args: args[0])


def key_filters(context: Context, result: Any, broadcasts: Any = None) -> DynamicFilters:
    results: Any = Results({} if result is None else {1: result})
    return DynamicFilters(context, results, broadcasts)


def fallbacks(context: Context) -> dict[int, str]:
    """Return what was done instead of filtering, by node."""
    return {
        decision.nodes[0]: f"{decision.outcome['instead']}: {decision.outcome['because']}"
        for decision in context.decisions
        if decision.outcome
    }


def fetch(key_filters: DynamicFilters, context: Context, nodes: Sequence[int] = (4, 2)) -> None:
    session: Any = "a session"
    for node_id in nodes:
        key_filters.collect(session, context.graph.node(node_id))


def apply(key_filters: DynamicFilters, context: Context, node_id: int) -> str:
    plan: Any = Plan(f"n{node_id}")
    return str(key_filters.apply(context.graph.node(node_id), plan))


def test_keys_are_collected_once_for_all_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, job_context = Spark(monkeypatch), context()
    tested = key_filters(job_context, written(8))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda node_id: fetch(tested, job_context, [node_id]), [4, 2] * 8))
    assert spark.collected == ["query"]
    assert fallbacks(job_context) == {}
    assert apply(tested, job_context, 2) == "n2 where might contain j"


def test_an_empty_key_set_leaves_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    Spark(monkeypatch, KeySet(0, is_empty=True))
    job_context = context()
    tested = key_filters(job_context, written(0))
    fetch(tested, job_context)
    assert apply(tested, job_context, 2) == "no rows of columns of n2"
    info = tested.source_filter(job_context.graph.node(4))
    assert info is not None
    assert info.predicate == "false"


NO_KEYS = "rows are not filtered: the keys of this side cannot be collected"
NO_ROWS = Written(None, ("stage",), written(8).sizes, rows=None)
PROBLEMS: dict[str, tuple[Any, Any, dict[str, str] | None, str]] = {
    "a query that fails": (written(8), RuntimeError("no memory"), None, "could not be collected: no memory"),
    "a side that has not run": (None, None, None, NO_KEYS),
    "rows that were not counted": (NO_ROWS, None, None, NO_KEYS),
    "rows that differ each time": (written(8), None, {"1-3": "rand()"}, NO_KEYS),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_without_keys_rows_are_not_filtered(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    result, answer, children, problem = PROBLEMS[case]
    spark, job_context = Spark(monkeypatch, answer), context(children=children)
    tested = key_filters(job_context, result)
    fetch(tested, job_context)
    assert len(spark.collected) == (answer is not None)  # a failed query is not retried
    by_node = fallbacks(job_context)
    assert sorted(by_node) == [2, 4]
    assert all(problem in fallback for fallback in by_node.values()), by_node
    assert apply(tested, job_context, 2) == "n2"
    assert tested.source_filter(job_context.graph.node(4)) is None


def test_a_cancelled_job_is_not_reported_as_missing_keys(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = RuntimeError("SparkException: [SPARK_JOB_CANCELLED] Job 919 cancelled the job has ended")
    Spark(monkeypatch, cancelled)
    job_context = context()
    with pytest.raises(RuntimeError, match="SPARK_JOB_CANCELLED"):
        fetch(key_filters(job_context, written(8)), job_context)
    assert fallbacks(job_context) == {}
    assert not caplog.records


def test_keys_are_collected_from_a_broadcast_relation(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, job_context = Spark(monkeypatch), context()
    monkeypatch.setattr(BroadcastResult, "relation", "relation")
    fetch(key_filters(job_context, BroadcastResult(RELATION, 7, 300, 30, 2, 2, None)), job_context)
    assert spark.collected == ["relation"]


@pytest.mark.parametrize(("fits", "collected"), [(True, "relation"), (False, "query")])
def test_a_side_that_became_a_broadcast_is_built_first(
    monkeypatch: pytest.MonkeyPatch, fits: bool, collected: str
) -> None:
    spark = Spark(monkeypatch)
    monkeypatch.setattr(BroadcastResult, "relation", "relation")
    relation = BroadcastResult(RELATION, 7, 300, 30, 2, 2, None) if fits else None
    before = context()
    path: Any = before.plan.nodes[3].filter_paths
    changed = job(
        TEXT.replace("1 #>", "1 *>"),
        {3: before.graph.node(3).operator},
        writes={"1-3": WriteKind.SIDE},
        sources=[4],
        paths={3: path},
        filters={4: (DynamicFilterRef(3, 0),)},
    )
    broadcasts = SimpleNamespace(relation=lambda edge, result: relation)
    fetch(key_filters(changed, written(8), broadcasts), changed, [4])
    assert spark.collected == [collected]


@pytest.mark.parametrize(
    ("verify", "has_matching_row", "raises"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_missing_keys_are_detected(
    monkeypatch: pytest.MonkeyPatch, verify: bool, has_matching_row: bool, raises: bool
) -> None:
    Spark(monkeypatch)
    monkeypatch.setattr("penstock.execution.dynamic_filters.has_matching_row", lambda *_: has_matching_row)
    monkeypatch.setattr(
        "penstock.execution.dynamic_filters.dropped_keys_condition", lambda *_: "a row without any of the keys"
    )
    job_context = context(verify=verify)
    tested = key_filters(job_context, written(8))
    if raises:
        with pytest.raises(VerificationError, match="the left side of node 3"):
            fetch(tested, job_context)
    else:
        fetch(tested, job_context)


def test_keys_are_checked_after_the_users_own_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the node above a source is cheap, its plan checks the keys, and the source only skips data."""
    Spark(monkeypatch)
    job_context = context(cheap=True)
    tested = key_filters(job_context, written(8))
    fetch(tested, job_context, [4])
    monkeypatch.setattr(DynamicFilters, "_source_conditions", lambda *_: (["j in (1, 2)"], ""))
    assert apply(tested, job_context, 4) == "n4 where j in (1, 2)"
    assert apply(tested, job_context, 2) == "n2 where might contain j"


def test_the_filter_of_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    Spark(monkeypatch)
    job_context = context()
    tested = key_filters(job_context, written(8))
    fetch(tested, job_context)
    info = tested.source_filter(job_context.graph.node(4))
    assert info is not None
    assert (info.columns, info.predicate) == (("j",), "j in (1, 2)")
    tested.release()
    assert tested.source_filter(job_context.graph.node(4)) is None
