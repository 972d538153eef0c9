"""When one task with all cores of its executor is chosen."""

from __future__ import annotations

import pytest

from penstock.sizing.one_task import PACE, SAVED, largest_for_one_task


@pytest.mark.parametrize(
    ("executor_cores", "cores", "most"),
    [
        (2, 2, None),  # one executor has all
        (4, 2, None),  # more than the application uses
        (4, 8, int(8 * PACE * SAVED)),
        (1, 2, int(2 * PACE * SAVED)),
        (1, 1000, int(PACE * SAVED * 1000 / 999)),
        (8, 1000, int(PACE * SAVED * 8000 / 992)),
    ],
)
def test_bound(executor_cores: int, cores: int, most: int | None) -> None:
    assert largest_for_one_task(executor_cores, cores) == most


def test_at_the_bound_as_much_is_lost_as_saved() -> None:
    most = largest_for_one_task(4, 12)
    assert most is not None
    assert most / PACE / 4 - most / PACE / 12 == pytest.approx(SAVED)
