"""The subpartitions that a step wrote."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events import VertexChanged, VertexSnapshot
from penstock.graph import JobVertex
from penstock.history.lines import EventLines
from penstock.history.record import VertexRecord
from penstock.web.charts.step import subpartition_bars
from tests.history.records import vertex


@pytest.mark.parametrize(
    ("sizes", "marked"),
    [
        ([], []),
        ([10, 20, 400], [False, False, False]),
        ([10 << 20, 20 << 20, 400 << 20], [False, False, True]),
        ([1 << 20, 400 << 20], [False, False]),
    ],
)
def test_large_subpartitions_are_marked(sizes: Any, marked: Any) -> None:
    assert [bar.is_skewed for bar in subpartition_bars(recorded(sizes))] == marked


@pytest.mark.parametrize(
    ("count", "bar", "label"),
    [
        (3, 2, "subpartition 2: 2 B"),
        (400, 17, "subpartition 17: 17 B"),
        (800, 17, "subpartitions 34 to 35: the largest 35 B"),
        (1000, 0, "subpartitions 0 to 2: the largest 2 B"),
        (1000, 333, "subpartition 999: 999 B"),
        (1199, 399, "subpartitions 1197 to 1198: the largest 1.2 KiB"),
    ],
)
def test_labels_of_grouped_neighbours(count: int, bar: int, label: str) -> None:
    assert subpartition_bars(recorded(range(count)))[bar].label == label


def recorded(sizes: Any) -> VertexRecord:
    """Return a vertex with sizes as they are recorded."""
    lines = EventLines().lines_of(
        VertexChanged(VertexSnapshot(JobVertex("v1", "", (1,), (), None, None), subpartitions=sizes))
    )
    return VertexRecord.of(vertex(1, [], "FINISHED")).updated(next(lines))
