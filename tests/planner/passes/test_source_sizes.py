"""What sources and join sides hold is told to them."""

from __future__ import annotations

from penstock.graph import JoinOperator, JoinSide, JoinType, ScanOperator, Side
from penstock.planner.passes.source_sizes import add_source_sizes
from tests.planner.drafts import draft

INNER = JoinOperator(JoinType.INNER, left=JoinSide(hint="merge"))


def test_the_bytes_below_each_side() -> None:
    text = "1 -> 4\n4 #> 6\n2 #> 5\n3 #> 5\n5 #> 6"
    changed = add_source_sizes(draft(text, {5: INNER, 6: INNER}, sources={1: 100, 2: 20, 3: 3}))
    sides = {
        (node_id, side): (known.sources, known.source_bytes)
        for node_id in (5, 6)
        for side in Side
        for known in [changed.nodes[node_id].operator.side(side)]
    }
    assert sides == {
        (5, Side.LEFT): ({2}, 20),
        (5, Side.RIGHT): ({3}, 3),
        (6, Side.LEFT): ({1}, 100),
        (6, Side.RIGHT): ({2, 3}, 23),
    }
    assert changed.nodes[6].operator.left.hint == "merge"


def test_bytes_that_are_not_known_are_none() -> None:
    text = "1 #> 4\n2 #> 3\n5 #> 3\n3 #> 4"
    changed = add_source_sizes(draft(text, {4: INNER}, sources={1: None, 2: None, 5: 70}))
    assert changed.nodes[1].operator == ScanOperator(bytes=None, table="range")
    join = changed.nodes[4].operator
    assert (join.left.source_bytes, join.right.source_bytes) == (None, 70)  # as far as they tell it


def test_rows_that_are_not_known_are_none() -> None:
    changed = add_source_sizes(draft("1 #> 2", sources={1: 7}))
    assert changed.nodes[1].operator == ScanOperator(bytes=7, rows=None, table="range")
