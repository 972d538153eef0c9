"""Positions of boxes and routes of edges."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as h

from penstock.web.charts.layout import GAP_X, GAP_Y, Size, layout, spread


@given(
    h.lists(h.tuples(h.integers(0, 30), h.integers(0, 30)), max_size=60),
    h.lists(h.tuples(h.integers(10, 300), h.integers(10, 200)), min_size=31, max_size=31),
)
def test_boxes_do_not_overlap_and_edges_lead_down(pairs: Any, box_sizes: Any) -> None:
    edges = [(str(min(pair)), str(max(pair))) for pair in pairs if pair[0] != pair[1]]
    sizes = {str(number): Size(*size) for number, size in enumerate(box_sizes)}
    drawing = layout(sizes, edges)
    assert set(drawing.positions) == set(sizes)
    for name, (x, y) in drawing.positions.items():
        assert x - sizes[name].width / 2 >= 0
        assert x + sizes[name].width / 2 <= drawing.width
        assert y + sizes[name].height <= drawing.row_bottoms[name] <= drawing.height
    for source, target in edges:
        assert drawing.row_bottoms[source] + GAP_Y <= drawing.positions[target][1]
    for (source, target), bends in drawing.bends.items():
        tops = [upper[1] for upper, _ in bends]
        rows = sorted(
            {
                y
                for _, y in drawing.positions.values()
                if drawing.positions[source][1] < y < drawing.positions[target][1]
            }
        )
        assert tops == rows, "a long edge passes every row between"
    across = [(y, x, sizes[name].width) for name, (x, y) in drawing.positions.items()]
    across += [(upper[1], upper[0], 0.0) for bends in drawing.bends.values() for upper, _ in bends]
    for (row, x, width), (other_row, other_x, other_width) in itertools.pairwise(sorted(across)):
        assert row != other_row or other_x - x >= (width + other_width) / 2


@pytest.mark.parametrize(
    ("targets", "widths", "expected"),
    [
        ([], [], []),
        ([5.0], [10.0], [5.0]),
        ([0.0, 500.0], [10.0, 10.0], [0.0, 500.0]),
        ([100.0, 100.0], [10.0, 10.0], [100 - (GAP_X + 10) / 2, 100 + (GAP_X + 10) / 2]),
        ([100.0, 0.0], [10.0, 10.0], [50 - (GAP_X + 10) / 2, 50 + (GAP_X + 10) / 2]),
    ],
)
def test_spread(targets: Any, widths: Any, expected: Any) -> None:
    assert spread(targets, widths) == pytest.approx(expected)


def test_many_sources_of_a_step_are_in_several_rows() -> None:
    sizes = {str(number): Size(100, 50) for number in range(14)}
    chain = [("0", "1"), ("1", "2"), ("2", "3")]
    drawing = layout(sizes, [*chain, *((str(source), "3") for source in range(4, 14))])
    rows = [y for _, y in drawing.positions.values()]
    assert max(rows.count(row) for row in rows) <= 6
    assert all(drawing.positions[str(source)][1] < drawing.positions["3"][1] for source in range(4, 14))
