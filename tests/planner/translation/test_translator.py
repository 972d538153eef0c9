"""Where a plan is cut, and what runs once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.graph import CalcOperator, OperatorKind
from penstock.planner.draft import TranslatedNode
from penstock.spark import catalyst
from tests.planner.translation.trees import Translated, equal, tree

if TYPE_CHECKING:
    from penstock.spark.plans import LogicalNode

A, B = tree("a"), tree("b", ids="j")
FILTER = tree("Filter", A)
CASES: dict[str, tuple[LogicalNode, list[str]]] = {
    "a scan": (A, []),
    "a run of narrow operators": (tree("Generate", tree("Project", FILTER)), ["a -> Calc"]),
    "one of them": (FILTER, ["a -> Filter"]),
    "a union": (tree("Union", FILTER, B), ["Filter -> Union", "b -> Union", "a -> Filter"]),
    "an operator that nobody knows": (tree("Mystery", FILTER, B), ["Filter -> Mystery", "b -> Mystery", "a -> Filter"]),
    "narrow ones above it": (tree("Filter", tree("Mystery", A)), ["a -> Mystery", "Mystery -> Filter"]),
    "a limit": (tree("GlobalLimit", tree("LocalLimit", A)), ["a -> GlobalLimit"]),
    "a limit of sorted rows": (tree("GlobalLimit", tree("LocalLimit", tree("Sort", A))), ["a -> GlobalLimit"]),
    "a limit of columns of sorted rows": (tree("LocalLimit", tree("Project", tree("Sort", A))), ["a -> LocalLimit"]),
}


@pytest.mark.parametrize("case", CASES)
def test_where_plans_are_cut(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    root, lines = CASES[case]
    assert Translated(monkeypatch, root).lines == lines


@pytest.mark.parametrize(
    ("root", "is_cheap"),
    [(tree("Project", FILTER), True), (tree("MapInPandas", FILTER), False), (tree("Filter", tree("Expand", A)), False)],
)
def test_what_costs_next_to_nothing(monkeypatch: pytest.MonkeyPatch, root: LogicalNode, is_cheap: bool) -> None:
    found = Translated(monkeypatch, root)
    (calc,) = (node.operator for node in found.builder.nodes.values() if node.kind is OperatorKind.CALC)
    assert isinstance(calc, CalcOperator)
    assert calc.is_cheap is is_cheap
    # The filters right above a source are told to it, where nothing else is between.
    assert found.asked == [("a", root.name if is_cheap else "a", None)]


@pytest.mark.parametrize(
    ("below", "wanted"),
    [(A, 5), (tree("Project", A), 5), (FILTER, None)],
    ids=["a scan", "columns of it", "rows of it"],
)
def test_how_many_rows_are_wanted_of_a_scan(
    monkeypatch: pytest.MonkeyPatch, below: LogicalNode, wanted: int | None
) -> None:
    inner = tree("LocalLimit", below)
    found = Translated(monkeypatch, tree("GlobalLimit", inner), limits={inner: 5})
    assert [limit for _, _, limit in found.asked] == [wanted]


def test_a_heavy_part_that_occurs_again_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (tree("Aggregate", tree("a")) for _ in range(2))
    monkeypatch.setattr(catalyst, "why_not_mergeable", lambda node: None)
    plans = tree("Project", first), tree("Filter", second)
    found = Translated(monkeypatch, *plans, classes={first: 1, second: 1})
    assert found.lines == ["a 1> Global aggregate", "Global aggregate -> Project", "Global aggregate -> Filter"]
    assert found.draft.same_leaf == {second.children[0]: first.children[0], first.children[0]: first.children[0]}


def test_a_light_part_that_occurs_again_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (tree("Filter", tree("a")) for _ in range(2))
    found = Translated(monkeypatch, tree("Mystery", first, second), classes={first: 1, second: 1})
    assert found.lines == ["Filter -> Mystery", "Filter -> Mystery", "a -> Filter", "a -> Filter"]


def test_a_run_ends_at_what_others_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tree("MapInPandas", tree("a"))
    found = Translated(monkeypatch, tree("Project", shared), tree("Filter", shared), classes={shared: 1})
    assert found.lines == ["a -> MapInPandas", "MapInPandas -> Project", "MapInPandas -> Filter"]


def test_what_a_leaf_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was cut out of several plans is a node already."""
    found = Translated(monkeypatch, A)
    place = tree("LogicalRDD")
    columns: Any = "its columns"
    found.translator.placeholders = lambda node: (TranslatedNode(1), columns) if node is place else None
    found.translator.translate(tree("Filter", place))
    assert found.lines == ["a -> Filter"]
    (edge,) = found.builder.edges
    assert found.builder.edge_plans[edge.id].output == "its columns"


def test_a_join_without_keys_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    join = tree("Join", A, B)
    for facts in (None, equal("k", "j", is_hashable=False)):
        found = Translated(monkeypatch, join, facts={} if facts is None else {join: facts})
        assert found.lines == ["a -> Join", "b -> Join"]
        assert found.builder.nodes[1].kind is OperatorKind.JOIN
        assert found.draft.joins == {}
