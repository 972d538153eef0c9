"""Number of tasks for Python functions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sizing.parallelism import MIB, PythonRun, seconds_per_mib, tasks_for_python


@pytest.mark.parametrize(
    ("bytes_in", "pace", "cores", "expected"),
    [
        # unknown pace: all cores are used, except by tasks too small for a worker
        (6 * MIB, None, 2, 2),
        (6 * MIB, None, 64, 64),
        (100 << 10, None, 64, 2),
        (1, None, 64, 1),
        (0, None, 64, 1),
        # known pace: half a second is worth a task, and no task takes more than ten seconds
        (MIB, 0.1, 8, 1),
        (MIB, 1.0, 8, 2),
        (10 * MIB, 1.0, 8, 8),
        (100 * MIB, 1.0, 8, 10),
        (1000 * MIB, 1.0, 8, 100),
        (0, 5.0, 8, 1),
    ],
)
def test_tasks(bytes_in: int, pace: float | None, cores: int, expected: int) -> None:
    assert tasks_for_python(bytes_in, pace, cores).tasks == expected


@pytest.mark.parametrize(
    ("pace", "reason"),
    [
        (None, "it runs Python functions, and there are 2 cores"),
        (
            0.25,
            "its Python functions took 0.25 s per MiB in this job, so they will take 1.5 s of a core",
        ),
    ],
)
def test_reasons(pace: float | None, reason: str) -> None:
    assert tasks_for_python(6 * MIB, pace, 2).reason == reason


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], None),
        ([PythonRun(0, 3.0, 1)], None),
        ([PythonRun(2 * MIB, 3.0, 1)], 1.5),
        ([PythonRun(2 * MIB, 3.0, 2)], 3.0),
        ([PythonRun(2 * MIB, 3.0, 9)], 6.0),  # four of nine tasks run at a time
        ([PythonRun(MIB, 1.0, 1), PythonRun(3 * MIB, 1.0, 1)], 0.5),
    ],
)
def test_pace(runs: Any, expected: float | None) -> None:
    assert seconds_per_mib(runs, 4) == expected
