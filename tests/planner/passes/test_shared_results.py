"""Results with several readers: the graph before and after the pass."""

from __future__ import annotations

import pytest

from penstock.planner.draft import DraftChoice
from penstock.planner.passes.shared_results import materialize_shared_results
from penstock.planner.plan import WriteKind
from tests.planner.drafts import draft, lines, refined

BY_K = {"1-2": "hash[0]", "1-3": "hash[0]"}
CASES = {
    "a single reader": ("1 #> 2\n2 -> 3", {}, {"1 #> 2", "2 -> 3"}),
    "two readers of the same layout": ("1 #> 2\n1 #> 3", BY_K, {"1 #> 2", "1 #> 3"}),
    "two readers by other keys": (
        "1 #> 2\n1 #> 3",
        BY_K | {"1-3": "hash[1]"},
        {"1 /> 4", "4 #> 2", "1 /> 5", "5 #> 3"},
    ),
    "two readers of unknown layouts": ("1 #> 2\n1 #> 3", {}, {"1 /> 4", "4 #> 2", "1 /> 5", "5 #> 3"}),
}


@pytest.mark.parametrize("name", CASES)
def test_graphs(name: str) -> None:
    text, signatures, expected = CASES[name]
    assert lines(refined(materialize_shared_results, draft(text, signatures=signatures))) == expected


def test_edges_that_read_plain_rows_share_a_group() -> None:
    changed = refined(materialize_shared_results, draft("1 #> 2\n1 #> 3\n3 #> 9"))
    plain = [edge for edge in changed.stream_edges if edge.source_id == 1]
    assert {changed.edges[edge.id].write for edge in plain} == {WriteKind.ROWS}
    assert len({changed.groups[edge.id] for edge in plain}) == 1
    assert len(set(changed.groups.values())) == 4


def test_the_decision_to_run_once() -> None:
    changed = refined(materialize_shared_results, draft("1 #> 2\n1 #> 3", signatures=BY_K))
    assert changed.choices == [DraftChoice("n1", "run once", "read 2 times, by n2 and n3")]
