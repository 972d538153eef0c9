"""Where a plan is divided into nodes, and which parts run once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.graph import CalcOperator, OperatorKind
from penstock.planner.draft import TranslatedNode
from penstock.spark.plans import catalyst
from tests.planner.translation.trees import Translated, equal, tree

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode

A, B = tree("a"), tree("b", ids="j")
FILTER = tree("Filter", A)
CASES: dict[str, tuple[LogicalNode, list[str]]] = {
    "a scan": (A, []),
    "a run of narrow operators": (tree("Generate", tree("Project", FILTER)), ["a -> Calc"]),
    "a single narrow operator": (FILTER, ["a -> Filter"]),
    "a union": (tree("Union", FILTER, B), ["Filter -> Union", "b -> Union", "a -> Filter"]),
    "an unknown operator": (tree("Mystery", FILTER, B), ["Filter -> Mystery", "b -> Mystery", "a -> Filter"]),
    "a narrow operator above it": (tree("Filter", tree("Mystery", A)), ["a -> Mystery", "Mystery -> Filter"]),
    "a limit": (tree("GlobalLimit", tree("LocalLimit", A)), ["a -> GlobalLimit"]),
    "a limit of sorted rows": (tree("GlobalLimit", tree("LocalLimit", tree("Sort", A))), ["a -> GlobalLimit"]),
    "a limit of columns of sorted rows": (tree("LocalLimit", tree("Project", tree("Sort", A))), ["a -> LocalLimit"]),
}


@pytest.mark.parametrize("case", CASES)
def test_division_into_nodes(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    root, lines = CASES[case]
    assert Translated(monkeypatch, root).lines == lines


@pytest.mark.parametrize(
    ("root", "is_cheap"),
    [(tree("Project", FILTER), True), (tree("MapInPandas", FILTER), False), (tree("Filter", tree("Expand", A)), False)],
)
def test_cheap_nodes(monkeypatch: pytest.MonkeyPatch, root: LogicalNode, is_cheap: bool) -> None:
    translated = Translated(monkeypatch, root)
    (calc,) = (node.operator for node in translated.draft.stream_nodes.values() if node.kind is OperatorKind.CALC)
    assert isinstance(calc, CalcOperator)
    assert calc.is_cheap is is_cheap
    # A source gets the filters directly above it.
    assert translated.created_sources == [("a", root.name if is_cheap else "a", None)]


@pytest.mark.parametrize(
    ("below", "limit"),
    [(A, 5), (tree("Project", A), 5), (FILTER, None)],
    ids=["a scan", "columns of it", "rows of it"],
)
def test_row_limits_of_scans(monkeypatch: pytest.MonkeyPatch, below: LogicalNode, limit: int | None) -> None:
    inner = tree("LocalLimit", below)
    translated = Translated(monkeypatch, tree("GlobalLimit", inner), limits={inner: 5})
    assert [row_limit for _, _, row_limit in translated.created_sources] == [limit]


def test_a_repeated_expensive_part_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (tree("Aggregate", tree("a")) for _ in range(2))
    monkeypatch.setattr(catalyst, "unmergeable_reason", lambda node: None)
    plans = tree("Project", first), tree("Filter", second)
    translated = Translated(monkeypatch, *plans, classes={first: 1, second: 1})
    assert translated.lines == ["a 1> Global aggregate", "Global aggregate -> Project", "Global aggregate -> Filter"]
    assert translated.draft.first_leaf == {second.children[0]: first.children[0], first.children[0]: first.children[0]}


def test_a_repeated_cheap_part_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (tree("Filter", tree("a")) for _ in range(2))
    translated = Translated(monkeypatch, tree("Mystery", first, second), classes={first: 1, second: 1})
    assert translated.lines == ["Filter -> Mystery", "Filter -> Mystery", "a -> Filter", "a -> Filter"]


def test_a_run_of_narrow_operators_ends_at_a_shared_part(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tree("MapInPandas", tree("a"))
    translated = Translated(monkeypatch, tree("Project", shared), tree("Filter", shared), classes={shared: 1})
    assert translated.lines == ["a -> MapInPandas", "MapInPandas -> Project", "MapInPandas -> Filter"]


def test_a_placeholder_is_replaced_by_its_shared_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was extracted from several plans is already a node."""
    translated = Translated(monkeypatch, A)
    placeholder = tree("LogicalRDD")
    columns: Any = "its columns"
    translated.translator.shared_part_of = lambda node: (TranslatedNode(1), columns) if node is placeholder else None
    translated.translator.translate(tree("Filter", placeholder))
    assert translated.lines == ["a -> Filter"]
    (edge,) = translated.draft.stream_edges
    assert translated.draft.edges[edge.id].output == "its columns"


def test_a_join_without_keys_runs_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    join = tree("Join", A, B)
    for facts in (None, equal("k", "j", is_hashable=False)):
        translated = Translated(monkeypatch, join, facts={} if facts is None else {join: facts})
        assert translated.lines == ["a -> Join", "b -> Join"]
        assert translated.draft.stream_nodes[1].kind is OperatorKind.JOIN
        assert translated.draft.joins == {}
