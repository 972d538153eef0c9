"""Sample outputs are compared by their lines, without figures."""

from __future__ import annotations

import pytest

from tests.support.outputs import lines_not_printed, shape, shapes

PRINTED = "Spark: 3.5 s, 100 countries\n\norders   12 tasks\n━━━━━━\ncustomers 3 tasks\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plain Spark:   9.7 s, rows [10,000, 4]", "plain Spark: # s, rows [#, #]"),
        ("│ 1 orders │ 3 │", "│ # orders │ # │"),
        ("━━━━━━", "─"),
    ],
)
def test_the_shape_of_a_line(line: str, expected: str) -> None:
    assert shape(line) == expected


@pytest.mark.parametrize(
    ("sample", "missing"),
    [
        ("Spark: 12.75 s, 7 countries\n...\ncustomers 40 tasks", []),
        ("customers 3 tasks\norders 12 tasks", ["orders # tasks"]),
        ("Spark: 3.5 s, 100 regions", ["Spark: # s, # regions"]),
    ],
)
def test_lines_of_a_sample_are_printed_in_this_order(sample: str, missing: list[str]) -> None:
    assert lines_not_printed(sample, PRINTED) == missing


def test_wrapped_cells_of_a_table_are_joined() -> None:
    table = "┏━━━┳━━━━━┓\n│ 1 │ 8 splits of │\n│   │ 2 files     │\n│ 2 │ a job 8fd7070aaeec │\n"
    assert shapes(table) == ["┏─┳─┓", "│ # │ # splits of # files │", "│ # │ a job # │"]
