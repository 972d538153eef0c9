"""Joins and aggregates: which sides are exchanged, broadcast, or already partitioned as required."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.decisions.log import DecisionKind
from penstock.graph import AggregateOperator, JoinOperator, JoinType
from penstock.planner.draft import DraftChoice
from penstock.planner.plan import WriteKind
from penstock.spark.plans import catalyst
from penstock.spark.plans.logical_plan import MAX_ESTIMATE_BYTES
from tests.planner.translation.trees import LEFT, RIGHT, Translated, equal, tree

if TYPE_CHECKING:
    from penstock.spark.plans.joins import JoinFacts
    from penstock.spark.plans.nodes import LogicalNode

A, B, C = tree("a", ids="kx"), tree("b", ids="jy"), tree("c", ids="hz")
JOIN = tree("Join", A, B, ids="kxjy")
SMALL = {A: 1000, B: 50}
"""The bytes of the sides; sides of up to 100 bytes are broadcast."""


@pytest.fixture(autouse=True)
def mergeable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        catalyst, "unmergeable_reason", lambda node: "it collects" if "collect" in node.description else None
    )


SHUFFLED = ["a #k> Join", "b #j> Join"]
CASES: dict[str, tuple[JoinFacts, dict[LogicalNode, int], list[str]]] = {
    "large sides": (equal("k", "j"), {}, SHUFFLED),
    "by several keys": (equal("kx", "jy"), {}, ["a #kx> Join", "b #jy> Join"]),
    "a small side": (equal("k", "j"), SMALL, ["a -> Join", "b *> Join"]),
    "the smaller of two": (equal("k", "j"), {A: 40, B: 50}, ["a *> Join", "b -> Join"]),
    "a small side that must not be built": (equal("k", "j", JoinType.RIGHT_OUTER), SMALL, SHUFFLED),
    "a small side, and a hint": (equal("k", "j", left_hint="merge"), SMALL, SHUFFLED),
    "a large side with a hint": (equal("k", "j", left_hint="broadcast"), {}, ["a *> Join", "b -> Join"]),
}


@pytest.mark.parametrize("case", CASES)
def test_sides(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    facts, sizes, lines = CASES[case]
    assert Translated(monkeypatch, JOIN, facts={JOIN: facts}, sizes=sizes).lines == lines


NOTES: dict[str, tuple[JoinFacts, dict[LogicalNode, int], list[DraftChoice]]] = {
    "nothing is broadcast": (equal("k", "j"), {}, []),
    "a small side": (
        equal("k", "j"),
        SMALL,
        [
            DraftChoice(
                1,
                "right",
                "Spark's statistics say 50 B for this side; the limit is 100 B (the.option)",
                DecisionKind.BROADCAST,
                {"bytes": 50, "limit": 100},
            )
        ],
    ),
    "a hint": (
        equal("k", "j", left_hint="broadcast"),
        {A: 5000},
        [DraftChoice(1, "left", "a join hint asks for it", DecisionKind.BROADCAST, {"bytes": 5000})],
    ),
    "a hint on a side of unknown size": (
        equal("k", "j", left_hint="broadcast"),
        {A: MAX_ESTIMATE_BYTES},
        [DraftChoice(1, "left", "a join hint asks for it", DecisionKind.BROADCAST, {})],
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_a_broadcast_planned_by_spark_is_a_decision(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    facts, sizes, notes = NOTES[case]
    assert Translated(monkeypatch, JOIN, facts={JOIN: facts}, sizes=sizes).draft.choices == notes


def test_the_operator_of_a_join(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = tree("Filter", B)
    join = tree("Join", A, filtered, ids="kxjy", references=("k", "j", "x"))
    facts = equal("k", "j", JoinType.LEFT_OUTER, right_hint="shuffle_hash", cannot_fail=False)
    translated = Translated(monkeypatch, join, facts={join: facts})
    operator = translated.draft.stream_nodes[1].operator
    assert isinstance(operator, JoinOperator)
    assert (operator.type, operator.cannot_fail) == (JoinType.LEFT_OUTER, False)
    assert operator.condition_columns == {"k", "j", "x"}
    assert (operator.left.hint, operator.right.hint) == (None, "shuffle_hash")
    assert (operator.left.columns, operator.right.columns) == ({"k", "x"}, {"j", "y"})
    assert (operator.left.may_shrink, operator.right.may_shrink) == (False, True)
    assert translated.draft.nodes[1].join_keys == {LEFT: ("k",), RIGHT: ("j",)}
    groups = set(translated.draft.groups.values())
    assert len(groups) == 1  # both sides have the same partitioning


def grouped(leaf: LogicalNode, key: str, ids: str | None = None) -> LogicalNode:
    return tree("Aggregate", leaf, ids=ids or leaf.ids, description=f"by {key}")


def chain(
    monkeypatch: pytest.MonkeyPatch, left: LogicalNode, facts: JoinFacts, *others: Any, **more: Any
) -> Translated:
    """Return the translation of a join of an operator with b."""
    join = tree("Join", left, B, ids="kxjy")
    return Translated(monkeypatch, join, *others, facts={join: facts}, **more)


def test_a_side_partitioned_by_the_keys_is_chained(monkeypatch: pytest.MonkeyPatch) -> None:
    group = grouped(A, "k")
    translated = chain(monkeypatch, group, equal("k", "j"), grouping={group: "k"})
    assert translated.lines == ["Aggregate ~k> Join", "b #j> Join", "a #k> Aggregate"]
    assert len(set(translated.draft.groups.values())) == 1


@pytest.mark.parametrize(
    ("by", "keys", "lines"),
    [
        ("xk", ("kx", "jy"), ["Aggregate ~xk> Join", "b #yj> Join"]),  # in the order of the existing partitioning
        ("k", ("kx", "jy"), ["Aggregate #kx> Join", "b #jy> Join"]),
        ("x", ("k", "j"), ["Aggregate #k> Join", "b #j> Join"]),
    ],
)
def test_sides_partitioned_by_other_keys(
    monkeypatch: pytest.MonkeyPatch, by: str, keys: tuple[str, str], lines: list[str]
) -> None:
    group = grouped(A, by)
    translated = chain(monkeypatch, group, equal(*keys), grouping={group: by})
    assert translated.lines[:2] == lines


def test_both_sides_are_partitioned(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the orders of the keys differ, the right side is exchanged."""
    left, right = grouped(A, "k"), grouped(B, "y")
    join = tree("Join", left, right, ids="kxjy")
    for by, edge in (("jy", "Aggregate ~jy> Join"), ("yj", "Aggregate #jy> Join")):
        translated = Translated(monkeypatch, join, facts={join: equal("kx", "jy")}, grouping={left: "kx", right: by})
        assert translated.lines[:2] == ["Aggregate ~kx> Join", edge]


def test_filtered_groups_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be few, so their size should be measured before the join."""
    group = grouped(A, "k")
    translated = chain(monkeypatch, tree("Filter", group), equal("k", "j"), grouping={group: "k"})
    assert "Filter #k> Join" in translated.lines


@pytest.mark.parametrize(("by", "is_chained"), [("k", True), ("j", True), ("kx", True), ("x", False), ("", False)])
def test_an_aggregate_above_a_join(monkeypatch: pytest.MonkeyPatch, by: str, is_chained: bool) -> None:
    """It shares the vertex of the join if rows with equal keys are already in the same task."""
    above = tree("Aggregate", JOIN, ids=by)
    translated = Translated(monkeypatch, above, facts={JOIN: equal("k", "j")}, grouping={above: by})
    (line,) = (line for line in translated.lines if line.endswith("ggregate"))
    arrow = f"~{by}>" if is_chained else f"#{by}>" if by else "1>"
    assert line == f"Join {arrow} {'Aggregate' if by else 'Global aggregate'}"


@pytest.mark.parametrize(
    ("join_type", "by", "is_chained"),
    [
        (JoinType.LEFT_OUTER, "k", True),
        (JoinType.LEFT_OUTER, "j", False),  # null for rows of any key
        (JoinType.RIGHT_OUTER, "j", True),
        (JoinType.FULL_OUTER, "k", False),
    ],
)
def test_keys_that_outer_joins_preserve(
    monkeypatch: pytest.MonkeyPatch, join_type: JoinType, by: str, is_chained: bool
) -> None:
    above = tree("Aggregate", JOIN, ids=by)
    translated = Translated(monkeypatch, above, facts={JOIN: equal("k", "j", join_type)}, grouping={above: by})
    assert (f"Join ~{by}> Aggregate" in translated.lines) is is_chained


@pytest.mark.parametrize(
    ("between", "is_preserved"),
    [
        (tree("Project", JOIN, ids="kj"), True),
        (tree("Filter", JOIN), True),
        (tree("Expand", JOIN), False),
        (tree("BatchEvalPython", JOIN), False),
        (tree("Project", JOIN, ids="xy"), False),
        (tree("Project", JOIN, ids="n", renamed_keys={"k": "n", "j": "m"}), True),
        (tree("GlobalLimit", JOIN), False),
        (tree("Union", JOIN, C, ids="kxjy"), False),
    ],
    ids=lambda value: value.name if isinstance(value, type(JOIN)) else "",
)
def test_partitioning_after_other_operators(
    monkeypatch: pytest.MonkeyPatch, between: LogicalNode, is_preserved: bool
) -> None:
    key = "n" if "n" in between.ids else "k"
    above = tree("Window", between)
    translated = Translated(monkeypatch, above, facts={JOIN: equal("k", "j")}, grouping={above: key})
    (line,) = (line for line in translated.lines if line.endswith("Window"))
    assert line.split()[1] == (f"~{key}>" if is_preserved else f"#{key}>")


def test_equal_inputs_of_two_joins_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = [tree("Filter", tree("b", ids="jy")) for _ in range(3)]
    first, second, third = (tree("Join", leaf, side, ids="kxjy") for leaf, side in zip((A, A, A), sides, strict=True))
    facts = {first: equal("k", "j"), second: equal("k", "j"), third: equal("k", "y")}
    classes = dict.fromkeys(sides, 1)
    translated = Translated(monkeypatch, first, second, third, facts=facts, classes=classes)
    readers = [
        edge for edge in translated.draft.stream_edges if translated.draft.stream_nodes[edge.source_id].name == "Filter"
    ]
    assert len(readers) == 3
    assert len({edge.source_id for edge in readers}) == 2  # a layout by other keys is written separately
    assert {translated.draft.edges[edge.id].signature for edge in readers} == {"hash[0]", "hash[1]"}


def test_inputs_of_aggregates_are_partial_aggregates(monkeypatch: pytest.MonkeyPatch) -> None:
    group, collects = grouped(A, "k"), tree("Aggregate", A, description="collect")
    translated = Translated(monkeypatch, group, collects, grouping={group: "k", collects: "k"})
    operators = [
        node.operator for node in translated.draft.stream_nodes.values() if isinstance(node.operator, AggregateOperator)
    ]
    assert [operator.not_mergeable for operator in operators] == [None, "it collects"]
    assert {edge_plan.write for edge_plan in translated.draft.edges.values()} == {WriteKind.OPERATOR}
