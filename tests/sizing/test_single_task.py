"""Limit of the input of queries that run as a single task."""

from __future__ import annotations

import pytest

from penstock.sizing.single_task import BYTES_PER_CORE_SECOND, OVERHEAD_SECONDS, largest_single_task_input


@pytest.mark.parametrize(
    ("executor_cores", "cores", "limit"),
    [
        (2, 2, None),  # one executor has all cores
        (4, 2, None),  # more than the application uses
        (4, 8, int(8 * BYTES_PER_CORE_SECOND * OVERHEAD_SECONDS)),
        (1, 2, int(2 * BYTES_PER_CORE_SECOND * OVERHEAD_SECONDS)),
        (1, 1000, int(BYTES_PER_CORE_SECOND * OVERHEAD_SECONDS * 1000 / 999)),
        (8, 1000, int(BYTES_PER_CORE_SECOND * OVERHEAD_SECONDS * 8000 / 992)),
    ],
)
def test_bound(executor_cores: int, cores: int, limit: int | None) -> None:
    assert largest_single_task_input(executor_cores, cores) == limit


def test_at_the_limit_the_extra_time_equals_the_overhead() -> None:
    limit = largest_single_task_input(4, 12)
    assert limit is not None
    assert limit / BYTES_PER_CORE_SECOND / 4 - limit / BYTES_PER_CORE_SECOND / 12 == pytest.approx(OVERHEAD_SECONDS)
