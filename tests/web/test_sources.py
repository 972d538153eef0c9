"""Growth of sources, by the numbers of rows that two runs read."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.web.comparison import Growth, growth
from tests.web.test_timing import step


def read(**rows: int) -> list[Any]:
    return [step(name, (0, 1), source=name, rows_in=number) for name, number in rows.items()]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (60_000_000, 1_200_000, "1.2 M rows of orders were read, 60.0 M before"),
        (1000, 5000, "5,000 rows of orders were read, 1,000 before"),
        (20_000, 1, "1 row of orders was read, 20.0 k before"),
    ],
)
def test_text(before: int, after: int, text: str) -> None:
    assert str(Growth("orders", before, after)) == text


def test_largest_change_comes_first() -> None:
    old = read(same=100, little=100, more=100, fewer=900, gone=5)
    new = read(same=100, little=105, more=300, fewer=100, new=7)
    assert [source.label for source in growth(old, new)] == ["fewer", "more"]


def test_equal_changes_are_merged() -> None:
    old, new = read(**{"t l1": 10, "t l2": 10, "u": 10}), read(**{"t l1": 90, "t l2": 90, "u": 80})
    assert list(map(str, growth(old, new))) == [
        "90 rows each of t l1 and t l2 were read, 10 before",
        "80 rows of u were read, 10 before",
    ]


def test_largest_read_of_a_table_counts() -> None:
    assert growth([*read(a=100), *read(a=10)], read(a=100)) == []
