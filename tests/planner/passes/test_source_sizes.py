"""The sizes and names of sources and join sides."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from penstock.connectors.core.coordinator import SourceCoordinator
from penstock.graph import AggregateOperator, CalcOperator, JoinOperator, JoinSide, JoinType, ScanOperator, Side
from penstock.graph.labels import side_name
from penstock.planner.passes.source_sizes import add_source_sizes
from tests.planner.drafts import draft, plan, refined

INNER = JoinOperator(JoinType.INNER, left=JoinSide(hint="merge"))


def test_source_bytes_of_each_side() -> None:
    text = "1 -> 4\n4 #> 6\n2 #> 5\n3 #> 5\n5 #> 6"
    changed = refined(add_source_sizes, draft(text, {5: INNER, 6: INNER}, sources={1: 100, 2: 20, 3: 3}))
    sides = {
        (node_id, side): (join_side.sources, join_side.source_bytes)
        for node_id in (5, 6)
        for side in Side
        for join_side in [changed.stream_nodes[node_id].operator.side(side)]
    }
    assert sides == {
        (5, Side.LEFT): ({2}, 20),
        (5, Side.RIGHT): ({3}, 3),
        (6, Side.LEFT): ({1}, 100),
        (6, Side.RIGHT): ({2, 3}, 23),
    }
    assert changed.stream_nodes[6].operator.left.hint == "merge"


def test_unknown_bytes_are_none() -> None:
    text = "1 #> 4\n2 #> 3\n5 #> 3\n3 #> 4"
    changed = refined(add_source_sizes, draft(text, {4: INNER}, sources={1: None, 2: None, 5: 70}))
    assert changed.stream_nodes[1].operator == ScanOperator(bytes=None, table="range (1)")
    join = changed.stream_nodes[4].operator
    assert (join.left.source_bytes, join.right.source_bytes) == (None, 70)  # the sum without unknown bytes


def test_sides_whose_rows_are_groups() -> None:
    text = "1 #> 2\n2 -> 3\n3 #> 5\n4 #> 5\n5 #> 7\n6 #> 7"
    operators = {2: AggregateOperator(None), 3: CalcOperator(), 5: INNER, 7: INNER}
    changed = refined(add_source_sizes, draft(text, operators, sources={1: 9, 4: 9, 6: 9}))
    sides = {
        (join, side): changed.stream_nodes[join].operator.side(side).is_aggregated for join in (5, 7) for side in Side
    }
    assert sides == {(5, Side.LEFT): True, (5, Side.RIGHT): False, (7, Side.LEFT): False, (7, Side.RIGHT): False}


def test_unknown_row_counts_are_none() -> None:
    changed = refined(add_source_sizes, draft("1 #> 2", sources={1: 7}))
    assert changed.stream_nodes[1].operator == ScanOperator(bytes=7, rows=None, table="range")


def test_sides_have_their_tables_by_size_and_the_tables_of_their_keys() -> None:
    text = "1 #> 4\n2 #> 3\n5 #> 3\n3 #> 4"
    translated = draft(text, {3: INNER, 4: INNER}, sources={1: 10, 2: 30, 5: 70})
    named = {
        node_id: replace(
            source, coordinator=SourceCoordinator(f"t{node_id}.parquet", None), leaf=plan("Range", ids=[f"c{node_id}"])
        )
        for node_id, source in translated.sources.items()
    }
    facts = SimpleNamespace(keys=lambda side: [SimpleNamespace(columns=("c1",) if side is Side.LEFT else ("c2", "x"))])
    translated = replace(translated, sources=named, joins={4: (None, facts)})
    changed = refined(add_source_sizes, translated)
    assert [changed.stream_nodes[node_id].operator.table for node_id in (1, 2, 5)] == ["t1", "t2", "t5"]
    join = changed.stream_nodes[4].operator
    assert (join.left.tables, join.left.key_tables) == (("t1",), ("t1",))
    assert (join.right.tables, join.right.key_tables) == (("t5", "t2"), ("t2",))  # x is computed


def test_only_the_largest_of_many_tables_are_named() -> None:
    sources: dict[int, int | None] = {number: number for number in range(1, 60)}
    text = "\n".join(f"{number} #> 60" for number in range(1, 60)) + "\n60 #> 70\n61 #> 70"
    translated = draft(text, {70: INNER}, sources=sources)
    translated = replace(
        translated,
        sources={n: replace(s, coordinator=SourceCoordinator(f"t{n}", None)) for n, s in translated.sources.items()},
    )
    join = refined(add_source_sizes, translated).stream_nodes[70].operator
    assert join.left.tables[:2] == ("t59", "t58")
    assert side_name(join, Side.LEFT) == "t59 with 58 more tables"
