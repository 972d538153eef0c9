"""The pieces of the rows that a step wrote."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events import VertexChanged, VertexSnapshot
from penstock.graph import JobVertex
from penstock.history.lines import EventLines
from penstock.web.pieces import bars_of


@pytest.mark.parametrize(
    ("sizes", "marked"),
    [
        ([], []),
        ([10, 20, 400], [False, False, False]),
        ([10 << 20, 20 << 20, 400 << 20], [False, False, True]),
        ([1 << 20, 400 << 20], [False, False]),
    ],
)
def test_large_pieces_are_marked(sizes: Any, marked: Any) -> None:
    assert [bar.is_skewed for bar in bars_of(sizes, len(sizes))] == marked


@pytest.mark.parametrize(
    ("count", "bar", "told"),
    [
        (3, 2, "piece 2: 2 B"),
        (400, 17, "piece 17: 17 B"),
        (800, 17, "pieces 34 to 35: the largest 35 B"),
        (1000, 0, "pieces 0 to 2: the largest 2 B"),
        (1000, 333, "piece 999: 999 B"),
        (1199, 399, "pieces 1197 to 1198: the largest 1.2 KiB"),
    ],
)
def test_neighbours_that_were_put_together_are_named(count: int, bar: int, told: str) -> None:
    sizes = recorded(range(count))
    assert bars_of(sizes, count)[bar].told == told


def recorded(sizes: Any) -> Any:
    """Return the sizes as a record has them."""
    made = EventLines().of(
        VertexChanged(VertexSnapshot(JobVertex("v1", "", (1,), (), None, None), subpartitions=sizes))
    )
    return next(made)["subpartitions"]
