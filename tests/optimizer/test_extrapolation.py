"""Extrapolating the size of a complete output from a part of it."""

from __future__ import annotations

import pytest

from penstock.optimizer.strategy import PartialResult

# Ended tasks, all tasks, bytes so far, a bound; the estimated bytes, and whether the output exceeds the bound.
CASES: dict[str, tuple[int, int, int, int, int | None, bool]] = {
    "it is already larger": (1, 100, 11, 10, None, True),
    "it already equals the bound": (1, 100, 10, 10, None, False),
    "too few tasks for an estimate": (3, 8, 9, 10, None, False),
    "too small a fraction for an estimate": (24, 100, 9, 10, None, False),
    "the estimate is far above the bound": (25, 100, 6, 10, 24, True),
    "the estimate is slightly above the bound": (25, 100, 5, 10, 20, False),
    "the estimate is below the bound": (4, 8, 2, 10, 4, False),
    "the output is complete": (8, 8, 8, 10, 8, False),
}


@pytest.mark.parametrize("case", CASES)
def test_estimates(case: str) -> None:
    done, tasks, so_far, bound, estimate, exceeds = CASES[case]
    assert PartialResult(done, tasks, so_far, 0).estimated_size == estimate
    assert PartialResult(done, tasks, so_far, 0).exceeds(bound) is exceeds
    assert PartialResult(done, tasks, 0, so_far).exceeds_rows(bound) is exceeds
