"""The recommended number of key groups, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.recommendation import recommend

GIB = 1 << 30
TABLE = [
    # current groups, bytes of state, cores, recommended groups, reason
    (4, 1 << 20, 2, 4, "neither too few nor too many"),
    (200, 1 << 20, 2, 2, "next divisor"),
    (199, 1 << 20, 2, 199, "no smaller divisor"),
    (4, 10 * GIB, 2, 80, "next multiple of 4"),
    (200, 10 * GIB, 16, 100, "next divisor"),
    (80, 10 * GIB + 1, 2, 160, "next multiple of 80"),  # a byte more than 80 groups should have
    (6, 1 << 20, 16, 18, "next multiple of 6"),
    (128, 100 * GIB, 64, 896, "next multiple of 128"),
    (32768, 1 << 20, 8192, 32768, "neither too few nor too many"),
    (20_000, 10_000 * GIB, 64, 20_000, "next multiple"),
]


@pytest.mark.parametrize(("current", "size", "cores", "expected", "reason"), TABLE)
def test_recommendations(current: int, size: Any, cores: int, expected: int, reason: str) -> None:
    recommendation = recommend(current, size, cores)
    assert recommendation.max_parallelism == expected
    assert reason in recommendation.reason
