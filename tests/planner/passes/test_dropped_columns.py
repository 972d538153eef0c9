from __future__ import annotations

from typing import Any

import pytest

from penstock.planner.passes import mark_dropped_columns
from tests.planner.drafts import draft, plan, refined

BELOW = plan("Range", ids="ab")


@pytest.mark.parametrize(
    ("name", "top", "expected"),
    [
        ("Project", plan("Project", BELOW, ids="a"), True),
        ("Project", plan("Project", BELOW, ids="ac"), False),  # c is computed
        ("Calc", plan("Project", BELOW, ids="a"), False),  # other operators run in the same node
        ("Project", plan("Filter", BELOW, ids="ab"), False),
        ("Project", None, False),
    ],
)
def test_projections(name: str, top: Any, expected: bool) -> None:
    before = draft("1 -> 2", tops={2: top})
    before.update_node(2, name=name)
    assert refined(mark_dropped_columns, before).stream_nodes[2].operator.drops_columns is expected
