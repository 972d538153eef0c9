"""What a part of a result says of all of it."""

from __future__ import annotations

import pytest

from penstock.optimizer.extrapolation import PartialResult

# Tasks that have ended, all tasks, bytes so far, a bound; the bytes foreseen, and whether the whole exceeds the bound.
CASES: dict[str, tuple[int, int, int, int, int | None, bool]] = {
    "it is larger by now": (1, 100, 11, 10, None, True),
    "it is as large by now": (1, 100, 10, 10, None, False),
    "too few tasks to foresee anything": (3, 8, 9, 10, None, False),
    "too small a part to foresee anything": (24, 100, 9, 10, None, False),
    "far more is foreseen": (25, 100, 6, 10, 24, True),
    "somewhat more is foreseen": (25, 100, 5, 10, 20, False),
    "less is foreseen": (4, 8, 2, 10, 4, False),
    "all of it is there": (8, 8, 8, 10, 8, False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_foreseen(case: str) -> None:
    done, tasks, so_far, bound, foreseen, exceeds = CASES[case]
    assert PartialResult(done, tasks, so_far, 0).foreseen_size == foreseen
    assert PartialResult(done, tasks, so_far, 0).exceeds(bound) is exceeds
    assert PartialResult(done, tasks, 0, so_far).exceeds_rows(bound) is exceeds
