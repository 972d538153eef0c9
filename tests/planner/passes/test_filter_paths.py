"""How far a filter on join keys can be pushed down, on plain trees; tests/planner/test_filters.py uses Spark plans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.graph import JoinInput, JoinOperator, JoinType, Side
from penstock.planner.passes.filter_paths import add_filter_paths
from penstock.spark.plans import catalyst
from penstock.spark.plans.nodes import LogicalNode
from tests.execution.plans import Key
from tests.planner.drafts import refined
from tests.planner.translation.trees import Translated, equal, keys, tree

if TYPE_CHECKING:
    from penstock.spark.plans.joins import JoinFacts, JoinKey


@pytest.fixture(autouse=True)
def plain_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogicalNode, "expressions", lambda self, ids: tuple(map(Key, ids)))
    monkeypatch.setattr(catalyst, "unmergeable_reason", lambda node: None)
    monkeypatch.setattr(catalyst, "groups_by", lambda node, ids: set(ids) <= set(node.description))


SAFE: dict[str, Any] = {"cannot_fail": True}
B = tree("b", ids="jy", **SAFE)


def scan(**facts: Any) -> LogicalNode:
    return tree("a", ids="kx", **SAFE, **facts)


def targets(
    monkeypatch: pytest.MonkeyPatch, left: LogicalNode, facts: JoinFacts | None = None, **more: Any
) -> dict[Side, list[list[str]]]:
    """Return the nodes above which a filter can be placed, for each side of a join of an operator with b."""
    join = tree("Join", left, B, ids="kxjy", **SAFE)
    inner = more.pop("joins", {})
    translated = Translated(monkeypatch, join, facts={join: facts or equal("k", "j"), **inner}, **more)
    draft = refined(add_filter_paths, translated.draft)
    operator = draft.stream_nodes[1].operator
    assert isinstance(operator, JoinOperator)
    paths: dict[Side, list[list[str]]] = {}
    for path in operator.filters:
        paths.setdefault(path.side, []).append([translated.name(target) for target in path.targets])
    return paths


LEFT, RIGHT = Side
TYPES = {
    JoinType.INNER: {LEFT, RIGHT},
    JoinType.LEFT_OUTER: {RIGHT},
    JoinType.RIGHT_OUTER: {LEFT},
    JoinType.FULL_OUTER: set(),
    JoinType.LEFT_SEMI: {LEFT, RIGHT},
    JoinType.LEFT_ANTI: {RIGHT},
}


@pytest.mark.parametrize("join_type", TYPES, ids=str)
def test_which_sides_of_a_join_can_be_filtered(monkeypatch: pytest.MonkeyPatch, join_type: JoinType) -> None:
    assert set(targets(monkeypatch, scan(), equal("k", "j", join_type))) == TYPES[join_type]


DOWN: dict[str, tuple[LogicalNode, list[str]]] = {
    "a scan": (scan(), ["a"]),
    "a filter": (tree("Filter", scan(), **SAFE), ["a", "Filter"]),
    "a filter that may fail": (tree("Filter", scan(), cannot_fail=False), ["Filter"]),
    "a nondeterministic filter": (tree("Filter", scan(), is_deterministic=False, **SAFE), ["Filter"]),
    "the same column": (tree("Project", scan(), ids="kx", **SAFE), ["a", "Project"]),
    "under another id": (
        tree("Project", tree("a", ids="nx", **SAFE), ids="kx", renamed_columns={"k": "n"}, **SAFE),
        ["a", "Project"],
    ),
    "a computed column": (tree("Project", tree("a", ids="nx", **SAFE), ids="kx", **SAFE), ["Project"]),
    "generated rows, by an input column": (tree("Generate", scan(), **SAFE), ["a", "Generate"]),
    "generated rows, by a new column": (tree("Generate", tree("a", ids="x", **SAFE), ids="kx", **SAFE), ["Generate"]),
    "a window by the key": (tree("Window", scan(), description="k", **SAFE), ["a", "Window"]),
    "a window by another": (tree("Window", scan(), description="x", **SAFE), ["Window"]),
    "a limit": (tree("LocalLimit", scan(), **SAFE), ["LocalLimit"]),
    "an unknown operator": (tree("Mystery", scan(), **SAFE), ["Mystery"]),
}


@pytest.mark.parametrize("case", DOWN)
def test_down_to_the_lowest_operator_that_commutes(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    left, expected = DOWN[case]
    grouping = {left: left.description} if left.name == "Window" else {}
    # A window by the key of the join is chained to the join, and is filtered nevertheless.
    assert targets(monkeypatch, left, grouping=grouping)[LEFT] == [expected]


def test_all_inputs_of_a_union(monkeypatch: pytest.MonkeyPatch) -> None:
    union = tree("Union", scan(), tree("c", ids="nm", **SAFE), ids="kx", **SAFE)
    assert targets(monkeypatch, union)[LEFT] == [["a", "Union"], ["c", "Union"]]


@pytest.mark.parametrize(
    ("join_type", "expected"),
    [
        (JoinType.INNER, [["a", "Join"], ["c", "Join"]]),  # the other side has equal keys
        (JoinType.LEFT_OUTER, [["a", "Join"]]),
        (JoinType.RIGHT_OUTER, [["Join"]]),
        (JoinType.FULL_OUTER, [["Join"]]),
    ],
)
def test_through_a_join_below(monkeypatch: pytest.MonkeyPatch, join_type: JoinType, expected: list[list[str]]) -> None:
    below = tree("Join", scan(), tree("c", ids="hz", **SAFE), ids="kxhz", **SAFE)
    # The lower join uses another column, so that the upper join exchanges its rows.
    assert targets(monkeypatch, below, joins={below: equal("k", "h", join_type)})[LEFT] == expected


@pytest.mark.parametrize(
    ("kind", "other", "is_filtered"),
    [
        ("bigint", "bigint", True),
        ("string", "string", True),
        ("decimal(9,2)", "decimal(9,2)", True),
        ("double", "double", False),
        ("int", "bigint", False),
        ("decimal(9,2)", "decimal(12,2)", False),
    ],
)
def test_only_keys_with_equal_bytes(monkeypatch: pytest.MonkeyPatch, kind: str, other: str, is_filtered: bool) -> None:
    facts = replace(equal("k", "j"), left=keys("k", type=kind), right=keys("j", type=other))
    assert bool(targets(monkeypatch, scan(), facts)) is is_filtered


@pytest.mark.parametrize(
    ("fact", "expected"),
    [({}, {LEFT, RIGHT}), ({"is_deterministic": False}, set()), ({"cannot_fail": False}, {LEFT, RIGHT})],
    ids=["plain", "another value each time", "may fail"],
)
def test_computed_keys(monkeypatch: pytest.MonkeyPatch, fact: dict[str, bool], expected: set[Side]) -> None:
    facts = replace(equal("k", "j"), left=keys("k", is_column=False, **fact))
    paths = targets(monkeypatch, tree("Filter", scan(), **SAFE), facts)
    assert set(paths) == expected
    if expected:  # a key that may fail must not be computed for rows that the filter removes
        assert paths[LEFT] == [["Filter"] if "cannot_fail" in fact else ["a", "Filter"]]


def test_a_path_ends_above_a_node_with_several_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All consumers read the same rows, so the filter must be above that node."""
    shared = tree("Window", scan(), description="k", **SAFE)
    left = tree("Filter", shared, **SAFE)
    join, other = tree("Join", left, B, ids="kxjy", **SAFE), tree("Project", shared, **SAFE)
    facts, grouping = {join: equal("k", "j")}, {shared: "k"}
    translated = Translated(monkeypatch, join, other, facts=facts, classes={shared: 1}, grouping=grouping)
    draft = refined(add_filter_paths, translated.draft)
    operator = draft.stream_nodes[1].operator
    assert isinstance(operator, JoinOperator)
    (path,) = (path for path in operator.filters if path.side is LEFT)
    assert [translated.name(target) for target in path.targets] == ["Filter"]
    assert len(draft.nodes[1].filter_paths) == len(operator.filters)


def null_safe(column: str) -> tuple[JoinKey, ...]:
    """Return the two expressions that Spark compares for ``<=>`` on a column."""
    (plain,) = keys(column, is_column=False)
    return tuple(replace(plain, expression=Key(text), key=text) for text in (f"coalesce {column}", f"isnull {column}"))


BELOW: dict[str, tuple[JoinFacts, LogicalNode]] = {
    "equal columns": (equal("k", "h", JoinType.LEFT_OUTER), tree("Aggregate", ids="k")),
    "another column": (equal("x", "h", JoinType.LEFT_OUTER), tree("Aggregate", ids="k")),
    "null-safe": (
        replace(equal("k", "h", JoinType.LEFT_OUTER), left=null_safe("k"), right=null_safe("h")),
        tree("Aggregate", ids="k"),
    ),
    "under another name": (
        equal("x", "h", JoinType.LEFT_OUTER),
        tree("Aggregate", ids="n", renamed_columns={"n": "k"}),
    ),
}


@pytest.mark.parametrize("case", BELOW)
def test_keys_of_a_chained_side_come_from_the_exchange_below(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """They are collected at the exchange of the lower join, whose own keys do not matter."""
    below_facts, group = BELOW[case]
    below = tree("Join", scan(), tree("c", ids="hz", **SAFE), ids="kxhz", **SAFE)
    group = replace(group, children=(below,), **SAFE)
    (key,) = group.ids
    join = tree("Join", group, B, ids=f"{key}jy", **SAFE)
    facts = {join: equal(key, "j"), below: below_facts}
    draft = refined(add_filter_paths, Translated(monkeypatch, join, facts=facts, grouping={group: key}).draft)
    upper = draft.node_of[join]
    operator = draft.stream_nodes[upper].operator
    assert isinstance(operator, JoinOperator)
    ((path, planned),) = (
        pair for pair in zip(operator.filters, draft.nodes[upper].filter_paths, strict=True) if pair[0].side is RIGHT
    )
    assert path.filter_source == JoinInput(draft.node_of[below], LEFT)
    assert planned.source_keys == (Key("k"),)


def test_keys_of_two_chained_joins_come_from_the_input_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second join reads the rows in the partitioning of the first."""
    first = tree("Join", scan(), tree("c", ids="hz", **SAFE), ids="kxhz", **SAFE)
    second = tree("Join", first, tree("d", ids="m", **SAFE), ids="kxhzm", **SAFE)
    group = tree("Aggregate", second, ids="k", **SAFE)
    join = tree("Join", group, B, ids="kjy", **SAFE)
    outer = {first: equal("k", "h", JoinType.LEFT_OUTER), second: equal("k", "m", JoinType.LEFT_OUTER)}
    translated = Translated(monkeypatch, join, facts={join: equal("k", "j"), **outer}, grouping={group: "k"})
    draft = refined(add_filter_paths, translated.draft)
    operator = draft.stream_nodes[draft.node_of[join]].operator
    assert isinstance(operator, JoinOperator)
    (source,) = (path.filter_source for path in operator.filters if path.side is RIGHT)
    assert source == JoinInput(draft.node_of[first], LEFT)
