"""The plan of a vertex as text: operators over sources and finished results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.decisions.log import Choice, Decision, DecisionKind, NodeRef
from penstock.execution.context import CoalescedRead, SlicedRead, UnchangedRead, VertexSetup
from penstock.execution.fragment_builder import FragmentBuilder
from penstock.graph import JobVertex, JoinOperator, JoinSide, JoinStrategy, JoinType, ShuffledJoin, Side
from penstock.graph.operators import JoinSequence
from penstock.optimizer.skew import LARGEST_FIGURE
from penstock.planner.plan import WriteKind
from penstock.sizing.skew_cut import Slice
from penstock.spark.run import exchange, layouts
from tests.execution.plans import Context, Plan, Results, job
from tests.scheduler.results import written

if TYPE_CHECKING:
    from penstock.execution.context import EdgeRead
    from penstock.graph import StreamEdge, StreamNode

INNER = JoinOperator(JoinType.INNER)
HASHED = INNER.with_strategy(JoinStrategy(ShuffledJoin.SHUFFLED_HASH, Side.RIGHT))


class Leaves:
    """Leaves as text that describes how they are read."""

    def __init__(self, relations: Collection[str] = (), results: Results | None = None) -> None:
        self.relations = relations
        self.results = results or Results()
        self.broadcasts = self
        self.read: list[str] = []

    def is_relation(self, edge: StreamEdge) -> bool:
        return edge.id in self.relations

    def leaf(self, edge: StreamEdge, read: EdgeRead, *, has_common_layout: bool, joins_slices: bool) -> Plan:
        self.read.append(edge.id)
        match read:
            case UnchangedRead():
                how = ""
            case CoalescedRead(ranges):
                how = f" by {len(ranges)} tasks"
            case SlicedRead(tasks):
                how = f" in {len(tasks)} slices{', joined' if joins_slices else ''}"
        return Plan(f"leaf {edge.id}{how}{'' if has_common_layout else ', not shared'}")


class Filters:
    """Marks the plans of nodes with filters."""

    def apply(self, node: StreamNode, plan: Plan) -> Plan:
        return Plan(f"filtered {plan}") if node.filters else plan


def built(
    context: Context,
    nodes: tuple[int, ...],
    *,
    setup: VertexSetup | None = None,
    scans: Mapping[int, Any] | None = None,
    leaves: Leaves | None = None,
) -> str:
    """Return the plan of a vertex with some nodes."""
    plan_leaves: Any = leaves or Leaves()
    filters: Any = Filters()
    session: Any = "a session"
    builder = FragmentBuilder(
        context, plan_leaves, filters, setup or VertexSetup(), session, scans or {}, context.plan.graph
    )
    return str(builder.build(JobVertex("v1", "", nodes, (), None, None)))


REF: Any = object()
CASES: dict[str, tuple[Context, tuple[int, ...], str]] = {
    "a source": (job("1 #> 2", sources=[1]), (1,), "scan 1"),
    "a source and its consumers": (job("1 -> 2\n2 -> 3", sources=[1]), (1, 2, 3), "n3(n2(scan 1))"),
    "a result under the operators of its consumer": (job("1 #> 2"), (2,), "n2(leaf 1-2)"),
    "a node without operators": (job("1 #> 2\n2 -> 3", passing=[2]), (2, 3), "n3(leaf 1-2)"),
    "several inputs, in order": (job("2 -> 3\n1 #> 3", sources=[2]), (2, 3), "n3(scan 2, leaf 1-3)"),
    "a filter": (job("1 -> 2\n2 -> 3", sources=[1], filters={2: (REF,)}), (1, 2, 3), "n3(filtered n2(scan 1))"),
    "a filter of a source": (job("1 -> 2", sources=[1], filters={1: (REF,)}), (1, 2), "n2(filtered scan 1)"),
    "a join without a decision": (job("1 #> 3\n2 #> 3", {3: INNER}), (3,), "merge n3(leaf 1-3, leaf 2-3)"),
    "a hash join": (job("1 #> 3\n2 #> 3", {3: HASHED}), (3,), "hash right n3(leaf 1-3, leaf 2-3)"),
    "a join with a user hint": (
        job("1 #> 3\n2 #> 3", {3: HASHED.with_side(Side.LEFT, JoinSide(hint="merge"))}),
        (3,),
        "n3(leaf 1-3, leaf 2-3)",
    ),
    "a single-row join, for which there is no merge join": (
        job("1 #> 3\n2 #> 3", {3: JoinOperator(JoinType.LEFT_SINGLE)}),
        (3,),
        "n3(leaf 1-3, leaf 2-3)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_plans(case: str) -> None:
    context, nodes, expected = CASES[case]
    assert built(context, nodes) == expected


def test_a_result_replaces_the_operator_before_the_exchange_or_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[list[str]] = []
    monkeypatch.setattr(
        "penstock.spark.plans.fragment.rebuild", lambda *args: replaced.append(list(args[-1])) or Plan("x")
    )
    built(job("1 #> 3\n2 #> 3", writes={"1-3": WriteKind.OPERATOR}), (3,))
    assert replaced == [["operator 1-3", "input 2-3"]]


def test_results_are_read_as_decided() -> None:
    setup = VertexSetup({"1-3": CoalescedRead([(0, 4), (4, 8)])}, has_common_layout=False)
    plan = built(job("1 #> 3\n2 #> 3"), (3,), setup=setup)
    assert plan == "n3(leaf 1-3 by 2 tasks, not shared, leaf 2-3, not shared)"


def test_a_source_with_settings_of_its_own() -> None:
    assert built(job("1 -> 2", sources=[1]), (1, 2), scans={1: 7}) == "n2(scan 1 in session 7)"


def test_a_join_with_a_broadcast_side_is_unchanged() -> None:
    context = job("1 *> 3\n2 -> 3", {3: INNER}, sources=[2])
    assert built(context, (2, 3), leaves=Leaves({"1-3"})) == "n3(leaf 1-3, scan 2)"
    assert built(context, (2, 3)) == "merge n3(leaf 1-3, scan 2)"  # the relation did not fit


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((4, 6), "columns of n6 in n6(n4(scan 1, leaf 3-4), leaf 5-6)"),
        ((6, 4), "columns of n6 in n4(n6(scan 1, leaf 5-6), leaf 3-4)"),
    ],
)
def test_joins_in_another_order(order: tuple[int, ...], expected: str) -> None:
    last = INNER.with_strategy(JoinStrategy(sequence=JoinSequence((4, 6), order)))
    context = job("1 -> 4\n3 *> 4\n4 -> 6\n5 *> 6", {4: INNER, 6: last}, sources=[1])
    leaves = Leaves({"3-4", "5-6"})
    assert built(context, (1, 4, 6), leaves=leaves) == expected
    assert sorted(leaves.read) == ["3-4", "5-6"]  # each once


def test_a_reordered_join_keeps_its_build_side() -> None:
    last = INNER.with_strategy(JoinStrategy(sequence=JoinSequence((4, 6), (6, 4))))
    context = job("3 *> 4\n1 -> 4\n4 -> 6\n5 *> 6", {4: INNER, 6: last}, sources=[1])
    plan = built(context, (1, 4, 6), leaves=Leaves({"3-4", "5-6"}))
    assert plan == "columns of n6 in n4(leaf 3-4, n6(scan 1, leaf 5-6))"


SKEWED = VertexSetup({edge: SlicedRead([(Slice((0, 1)),), (Slice((1, 2)),)]) for edge in ("1-3", "2-3")})


def split_join(monkeypatch: pytest.MonkeyPatch, answer: bool | Exception) -> tuple[str, list[Decision]]:
    """Build a join with both sides split, when Spark's plan is as answered; return the plan and the decisions."""
    planned: list[str] = []

    def joins_its_leaves(physical: Any) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def physical_plan(*args: Any) -> Any:
        planned.append(args[-1])
        return SimpleNamespace(rows=lambda: "the join")

    monkeypatch.setattr(exchange, "physical_plan", physical_plan)
    monkeypatch.setattr(layouts, "joins_its_leaves", joins_its_leaves)
    context = job("1 #> 3\n2 #> 3", {3: INNER})
    context.decisions.record(Choice(DecisionKind.SKEW, NodeRef(3, "n3"), "split", "hot", {LARGEST_FIGURE: 9}))
    context.decisions.record(Choice(DecisionKind.VERTEX_PARALLELISM, NodeRef(3, "n3"), "2", "keys are split"))
    leaves = Leaves(results=Results({1: written(5, 5), 2: written(5, 5)}))
    plan = built(context, (3,), setup=SKEWED, leaves=leaves)
    assert planned == ["merge n3(leaf 1-3 in 2 slices, joined, leaf 2-3 in 2 slices, joined)"]
    return plan, list(context.decisions)


def test_a_split_join_that_spark_joins_within_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, decisions = split_join(monkeypatch, answer=True)
    assert plan == "rows of the join"  # without a claimed layout
    assert [dict(decision.outcome) for decision in decisions] == [{}, {}]


@pytest.mark.parametrize(
    "answer",
    [False, RuntimeError("no other input can be repartitioned like coalesced subpartitions")],
    ids=["no", "refused"],
)
def test_a_split_join_that_spark_plans_differently(monkeypatch: pytest.MonkeyPatch, answer: bool | Exception) -> None:
    plan, decisions = split_join(monkeypatch, answer)
    assert plan == "merge n3(leaf 1-3 by 2 tasks, leaf 2-3 by 2 tasks)"
    skew, tasks = decisions
    assert skew.outcome["instead"] == "its partitions are not split"
    assert skew.outcome["split"] == 0
    assert tasks.outcome["instead"] == "its tasks read whole partitions"
    assert tasks.outcome["because"] == skew.outcome["because"]


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no memory"):
        split_join(monkeypatch, ValueError("no memory"))
