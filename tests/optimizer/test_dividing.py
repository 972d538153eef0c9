"""The estimated speedup of splitting the rows of hot keys."""

from __future__ import annotations

import pytest

from penstock.optimizer.skewed_window import speedup


@pytest.mark.parametrize(
    ("largest", "hot", "total", "cores", "tasks", "expected"),
    [
        (1000, 1000, 1000, 10, 100, 5),  # all rows are hot: a tenth of the time at twice the cost
        (1000, 1000, 1000, 10, 5, 2.5),  # the number of writing tasks bounds the chunks
        (1000, 1000, 1000, 1000, 10, 5),
        (500, 1000, 1000, 10, 100, 2.5),  # two hot partitions, one per core
        (100, 100, 1000, 10, 100, 100 / 110),  # no larger than an even share
        (10, 10, 1000, 10, 100, 100 / 101),
        (1000, 1000, 1000, 2, 100, 1),
    ],
)
def test_speedup(largest: int, hot: int, total: int, cores: int, tasks: int, expected: float) -> None:
    assert speedup(largest, hot, total, cores, tasks) == pytest.approx(expected)
