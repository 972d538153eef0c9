"""The stages of a step count all of their tasks, even if only a few were recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.web.steps import Stage, stages_of
from tests.history.records import loaded, task


def figures(number: int, tasks: int, seconds: float) -> dict[str, Any]:
    return {
        "id": number,
        "attempt": 0,
        "tasks": tasks,
        "bytes_in": 0,
        "bytes_out": 0,
        "rows_in": 0,
        "rows_out": 0,
        "spilled": 0,
        "seconds": seconds,
    }


@pytest.mark.parametrize(
    ("tasks", "totals", "expected"),
    [
        ([], [], ()),
        ([(1, 2.0), (1, 4.0)], [], (Stage(1, 2, 6.0, (2.0, 4.0)),)),  # a log of an older release
        ([(1, 2.0)], [figures(1, 1000, 1e3)], (Stage(1, 1000, 1e3, (2.0,)),)),
        ([], [figures(2, 5, 7.0)], (Stage(2, 5, 7.0, ()),)),
        ([], [figures(2, 0, 0.0)], ()),  # a skipped stage
        (
            [(1, 2.0), (1, 2.0), (1, 3.0)],
            [figures(1, 1, 3.0)],
            (Stage(1, 3, 7.0, (2.0, 2.0, 3.0)),),
        ),  # a repeated attempt
        (
            [(1, 2.0), (4, 9.0)],
            [figures(1, 1, 2.0), figures(4, 3, 27.0)],
            (Stage(1, 1, 2.0, (2.0,)), Stage(4, 3, 27.0, (9.0,))),
        ),
    ],
)
def test_stages_count_all_of_their_tasks(tasks: Any, totals: Any, expected: Any) -> None:
    recorded, stages = loaded([task(0, seconds) | {"stage": stage} for stage, seconds in tasks], totals)
    assert tuple(replace(stage, task_rows=()) for stage in stages_of(recorded, stages)) == expected
