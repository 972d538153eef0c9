"""Keys of finished join sides: fetched once for all who need them, and what is done where they cannot be had."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.decisions import Choice, DecisionKind, NodeRef
from penstock.errors import VerificationError
from penstock.execution.runtime_filters import KeyFilters
from penstock.graph import CalcOperator, DynamicFilterRef, FilterPath, JoinInput, JoinOperator, JoinType, Side
from penstock.optimizer.dynamic_filtering import JOIN, SIDE
from penstock.planner.plan import FilterTarget, SparkFilterPath, WriteKind
from penstock.spark import catalyst, filters
from penstock.spark.exchange import BroadcastResult
from penstock.spark.filters import KeySet
from tests.execution.plans import Context, Key, Plan, Results, job
from tests.scheduler.results import Written, written

if TYPE_CHECKING:
    from collections.abc import Sequence

# Node 3 joins what 1 wrote (its left side) with 2; nodes 2 and 4, a source, are filtered by the keys of 1.
TEXT = "1 #> 3\n4 -> 2\n2 #> 3"
LEFT = JoinInput(3, Side.LEFT)
RELATION: Any = None
"""What Spark would have of a relation."""


def context(*, verify: bool = False, cheap: bool = False, children: dict[str, str] | None = None) -> Context:
    targets = (4, 2)
    path = FilterPath(Side.RIGHT, targets, LEFT)
    top: Any = Plan("n")
    planned = SparkFilterPath(
        tuple(FilterTarget(one, top, ("#1",)) for one in targets), (Key("k"),), (Key("j"),), ("#9",)
    )
    ref = DynamicFilterRef(3, 0)
    made = job(
        TEXT,
        {3: JoinOperator(JoinType.INNER, filters=(path,)), 2: CalcOperator(is_cheap=cheap)},
        sources=[4],
        paths={3: (planned,)},
        filters={4: (ref,)} if cheap else {4: (ref,), 2: (ref,)},
        verify=verify,
        children=children,
    )
    figures = {JOIN: 3, SIDE: Side.LEFT}
    for node_id in (2, 4):
        decision = Choice(DecisionKind.DYNAMIC_FILTER, NodeRef(node_id, f"n{node_id}"), "keys", "few", figures)
        made.decisions.record(decision)
    return made


class Spark:
    """Gives keys, and notes how it was asked for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: KeySet | Exception | None = None) -> None:
        self.asked: list[str] = []
        self.answer = KeySet(100) if answer is None else answer

        def given(how: str) -> KeySet:
            self.asked.append(how)
            time.sleep(0.02)  # long enough for others to ask meanwhile
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        monkeypatch.setattr(filters, "collect_keys", lambda *_: given("query"))
        monkeypatch.setattr(filters, "keys_of_relation", lambda *_: given("relation"))
        monkeypatch.setattr(filters, "might_contain", lambda *args: f"might contain {', '.join(args[-1])}")
        monkeypatch.setattr(filters, "for_sources", lambda *args: [Key(f"{args[-1][0]} in (1, 2)")])
        monkeypatch.setattr(catalyst, "rebound", lambda *args: args[0])


def key_filters(made: Context, result: Any, broadcasts: Any = None) -> KeyFilters:
    results: Any = Results({} if result is None else {1: result})
    return KeyFilters(made, results, broadcasts)


def instead(made: Context) -> dict[int, str]:
    """Return what was done instead of filtering, by node."""
    return {
        one.nodes[0]: f"{one.outcome['instead']}: {one.outcome['because']}" for one in made.decisions if one.outcome
    }


def fetch(found: KeyFilters, made: Context, nodes: Sequence[int] = (4, 2)) -> None:
    session: Any = "a session"
    for node_id in nodes:
        found.fetch(session, made.graph.node(node_id))


def apply(found: KeyFilters, made: Context, node_id: int) -> str:
    plan: Any = Plan(f"n{node_id}")
    return str(found.apply(made.graph.node(node_id), plan))


def test_keys_are_fetched_once_for_all_who_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, made = Spark(monkeypatch), context()
    found = key_filters(made, written(8))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda node_id: fetch(found, made, [node_id]), [4, 2] * 8))
    assert spark.asked == ["query"]
    assert instead(made) == {}
    assert apply(found, made, 2) == "n2 where might contain j"


def test_no_keys_leave_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    Spark(monkeypatch, KeySet(0, is_empty=True))
    made = context()
    found = key_filters(made, written(0))
    fetch(found, made)
    assert apply(found, made, 2) == "no rows of columns of n2"
    info = found.info(made.graph.node(4))
    assert info is not None
    assert info.predicate == "false"


NOT_TOLD = "rows are not filtered: keys cannot be told of this side"
NO_ROWS = Written(None, ("stage",), written(8).sizes, rows=None)
PROBLEMS: dict[str, tuple[Any, Any, dict[str, str] | None, str]] = {
    "a query that fails": (written(8), RuntimeError("no memory"), None, "could not be fetched: no memory"),
    "a side that has not run": (None, None, None, NOT_TOLD),
    "rows that were not counted": (NO_ROWS, None, None, NOT_TOLD),
    "rows that are others each time": (written(8), None, {"1-3": "rand()"}, NOT_TOLD),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_without_keys_rows_go_unfiltered(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    result, answer, children, problem = PROBLEMS[case]
    spark, made = Spark(monkeypatch, answer), context(children=children)
    found = key_filters(made, result)
    fetch(found, made)
    assert len(spark.asked) == (answer is not None)  # one that failed is not tried again
    said = instead(made)
    assert sorted(said) == [2, 4]
    assert all(problem in one for one in said.values()), said
    assert apply(found, made, 2) == "n2"
    assert found.info(made.graph.node(4)) is None


def test_the_relation_of_a_broadcast_gives_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, made = Spark(monkeypatch), context()
    monkeypatch.setattr(BroadcastResult, "relation", "relation")
    fetch(key_filters(made, BroadcastResult(RELATION, 7, 300, 30, 2, 2, None)), made)
    assert spark.asked == ["relation"]


@pytest.mark.parametrize(("fits", "asked"), [(True, "relation"), (False, "query")])
def test_a_side_that_became_a_broadcast_is_made_a_relation_first(
    monkeypatch: pytest.MonkeyPatch, fits: bool, asked: str
) -> None:
    spark = Spark(monkeypatch)
    monkeypatch.setattr(BroadcastResult, "relation", "relation")
    relation = BroadcastResult(RELATION, 7, 300, 30, 2, 2, None) if fits else None
    made = context()
    path: Any = made.plan.nodes[3].filter_paths
    changed = job(
        TEXT.replace("1 #>", "1 *>"),
        {3: made.graph.node(3).operator},
        writes={"1-3": WriteKind.SIDE},
        sources=[4],
        paths={3: path},
        filters={4: (DynamicFilterRef(3, 0),)},
    )
    broadcasts = SimpleNamespace(relation=lambda edge, result: relation)
    fetch(key_filters(changed, written(8), broadcasts), changed, [4])
    assert spark.asked == [asked]


@pytest.mark.parametrize(
    ("verify", "is_met", "raises"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_keys_that_were_left_out_are_found(
    monkeypatch: pytest.MonkeyPatch, verify: bool, is_met: bool, raises: bool
) -> None:
    Spark(monkeypatch)
    monkeypatch.setattr("penstock.execution.runtime_filters.is_met", lambda *_: is_met)
    monkeypatch.setattr("penstock.execution.runtime_filters.ruled_out", lambda *_: "a row that has none of them")
    made = context(verify=verify)
    found = key_filters(made, written(8))
    if raises:
        with pytest.raises(VerificationError, match="the left side of node 3"):
            fetch(found, made)
    else:
        fetch(found, made)


def test_rows_are_looked_up_behind_the_user_s_own_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the node above a source is a cheap one, its filters stand there, and the source only leaves out data."""
    Spark(monkeypatch)
    made = context(cheap=True)
    found = key_filters(made, written(8))
    fetch(found, made, [4])
    monkeypatch.setattr(KeyFilters, "_worth_handing_over", lambda *_: (["j in (1, 2)"], ""))
    assert apply(found, made, 4) == "n4 where j in (1, 2)"
    assert apply(found, made, 2) == "n2 where might contain j"


def test_what_a_source_may_know(monkeypatch: pytest.MonkeyPatch) -> None:
    Spark(monkeypatch)
    made = context()
    found = key_filters(made, written(8))
    fetch(found, made)
    info = found.info(made.graph.node(4))
    assert info is not None
    assert (info.columns, info.predicate) == (("j",), "j in (1, 2)")
    found.clear()
    assert found.info(made.graph.node(4)) is None
