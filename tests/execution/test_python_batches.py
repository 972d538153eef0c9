"""Batches for Python functions: when Spark need not measure them."""

from __future__ import annotations

import pytest

from penstock.execution.python_batches import reaches_limit
from penstock.spark.python_batches import BatchLimits

SPARKS = BatchLimits(rows=10_000, bytes=64 << 20)


@pytest.mark.parametrize(
    ("widths", "limits", "expected"),
    [
        ([18], SPARKS, False),
        ([18, 9], SPARKS, False),
        ([18, None], SPARKS, True),
        ([None], SPARKS, True),
        ([6_600], SPARKS, False),
        ([6_640], SPARKS, True),
        ([18], BatchLimits(rows=0, bytes=64 << 20), True),
        ([18], BatchLimits(rows=-1, bytes=64 << 20), True),
        ([18], BatchLimits(rows=100, bytes=4096), True),
        ([18], BatchLimits(rows=100, bytes=8192), False),
    ],
)
def test_whether_a_batch_may_reach_its_limit(widths: list[int | None], limits: BatchLimits, expected: bool) -> None:
    assert reaches_limit(widths, limits) is expected
