"""What is won if rows of hot keys are divided: from tables."""

from __future__ import annotations

import pytest

from penstock.optimizer.dividing import times_faster


@pytest.mark.parametrize(
    ("largest", "hot", "total", "cores", "tasks", "faster"),
    [
        (1000, 1000, 1000, 10, 100, 5),  # everything is hot: a tenth of the time, at twice the cost
        (1000, 1000, 1000, 10, 5, 2.5),  # as many pieces as tasks wrote it
        (1000, 1000, 1000, 1000, 10, 5),
        (500, 1000, 1000, 10, 100, 2.5),  # two hot partitions: each core takes one
        (100, 100, 1000, 10, 100, 100 / 110),  # no core waits for it
        (10, 10, 1000, 10, 100, 100 / 101),
        (1000, 1000, 1000, 2, 100, 1),
    ],
)
def test_times_faster(largest: int, hot: int, total: int, cores: int, tasks: int, faster: float) -> None:
    assert times_faster(largest, hot, total, cores, tasks) == pytest.approx(faster)
