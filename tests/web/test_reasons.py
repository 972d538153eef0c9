"""Explanations of the duration of a step."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.web.causes import reasons_of_time
from penstock.web.steps import Stage
from tests.web.test_timing import step


def ran(*seconds: float, tasks: int = 0, total: float = 0.0, number: int = 1) -> Stage:
    """Return a stage with the durations of its recorded tasks; if `tasks` is larger, the others were not recorded."""
    return Stage(number, tasks or len(seconds), total or sum(seconds), seconds)


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        (
            step("a", (0, 6), stages=(ran(4.0, 5.0),), busy=((0, 5),)),
            [
                "the work itself: 9.0 s of run time in 2 tasks, evenly distributed",
                "its 2 tasks ran for 9.0 s in total; 1.8 ran in parallel on average",
            ],
        ),
        # Spark's total excludes a part of the tasks' time
        (
            step("a", (0, 6), stages=(ran(4.0, 5.0, total=6.0),), busy=((0, 5),)),
            [
                "the work itself: 9.0 s of run time in 2 tasks, evenly distributed",
                "its 2 tasks ran for 9.0 s in total; 1.8 ran in parallel on average",
            ],
        ),
        (
            step("a", (0, 10), stages=(ran(1.0),), busy=((9, 10),)),
            ["its tasks ran for only 1.0 s; 9.0 s passed before them, while Spark planned the step"],
        ),
        (
            step("a", (0, 10), stages=(ran(1.0),), busy=((4, 5),), is_broadcast=True),
            [
                (
                    "its tasks ran for only 1.0 s; 4.0 s passed before them, while Spark planned the step; 5.0 s passed after them, "
                    "while its rows were collected and the broadcast table was built"
                ),
            ],
        ),
        (
            step("a", (0, 10), stages=(ran(1.0, 1.0, 9.0),)),
            [
                "its slowest task took 9.0 s, the median 1.0 s",
                "its 3 tasks ran for 11.0 s in total; 1.1 ran in parallel on average",
            ],
        ),
        # 200 of 1,000 tasks were recorded
        (
            step("a", (0, 100), stages=(ran(*[1.0] * 200, tasks=1000, total=1000.0),)),
            [
                "the work itself: 16 min 40 s of run time in 1,000 tasks, evenly distributed",
                "its 1,000 tasks ran for 16 min 40 s in total; 10.0 ran in parallel on average",
            ],
        ),
        (
            step("a", (0, 20), stages=(ran(*[1.0] * 199, 9.0, tasks=1000, total=1008.0),)),
            [
                "the slowest of its first 200 tasks took 9.0 s, the median 1.0 s",
                "its 1,000 tasks ran for 16 min 48 s in total; 50.4 ran in parallel on average",
            ],
        ),
        # differences between stages are not skew
        (
            step("a", (0, 10), stages=(ran(*[0.1] * 5), ran(3.0, 3.0, 3.0, number=2))),
            [
                "the work itself: 9.5 s of run time in 8 tasks, evenly distributed",
                "its 8 tasks of 2 stages ran for 9.5 s in total; they ran sequentially",
            ],
        ),
        (
            step("a", (0, 10), stages=(ran(2.0, 2.0, 2.0), ran(0.1, 0.1, 2.5, number=2))),
            [
                "its slowest task took 2.5 s, the median 0.10 s",
                "its 6 tasks of 2 stages ran for 8.7 s in total; they ran sequentially",
            ],
        ),
        (
            step("a", (0, 10), spilled=1 << 20, rows_in=5_000_000, bytes_in=1 << 30),
            [
                "1.0 MiB did not fit into memory and was spilled to disk",
                "it read 5.0 M rows, 1.0 GiB (more than any other step)",
            ],
        ),
        (step("a", (0, 10), rows_in=1), ["it read 1 row"]),
        (step("a", None), []),
    ],
)
def test_reasons_of_time(slow: Any, expected: Any) -> None:
    assert list(reasons_of_time(slow, [slow, step("b", (0, 1), rows_in=2)])) == expected


def measured(*seconds: float, rows: Any = (), cpu: float, gc: float = 0.0, fetch: float = 0.0) -> Stage:
    """Return a stage with Spark's totals of its CPU time, garbage collection and waits for shuffled data."""
    return Stage(1, len(seconds), sum(seconds), seconds, tuple(rows), cpu, gc, fetch)


@pytest.mark.parametrize(
    ("stage", "more", "expected"),
    [
        (measured(5.0, 5.0, cpu=9.0), {}, "the work itself: 9.0 s of CPU in 2 tasks, evenly distributed"),
        (measured(1.0, 9.0, cpu=9.0), {}, "the work itself: 9.0 s of CPU in 2 tasks"),
        (measured(10.0, cpu=9.0), {"cores": 2}, "a single task ran for 10.0 s on only 1 of 2 cores"),
        (measured(5.0, 5.0, cpu=9.0), {"cores": 8}, "2 tasks ran for 10.0 s on only 2 of 8 cores"),
        (
            measured(*[2.5] * 8, cpu=19.0),
            {"cores": 2},
            "its 8 tasks took turns on 2 cores, about 4 each: more cores would shorten it",
        ),
        (measured(*[1.0] * 8, cpu=8.0), {"cores": 2}, "the work itself: 8.0 s of CPU in 8 tasks, evenly distributed"),
        (
            measured(1.0, 1.0, 9.0, rows=(10, 10, 95), cpu=10.0),
            {},
            "its slowest task took 9.0 s, the median 1.0 s; the rows are skewed: it read 95 rows, the median is 10",
        ),
        (
            measured(1.0, 1.0, 9.0, rows=(10, 10, 11), cpu=10.0),
            {},
            "its slowest task took 9.0 s, the median 1.0 s; not by its rows: it read 11 rows, the median is 10",
        ),
        (measured(5.0, 5.0, cpu=6.0, gc=3.0), {}, "garbage collection took 3.0 s of the 10.0 s that its tasks ran"),
        (
            measured(5.0, 5.0, cpu=6.0, fetch=3.0),
            {},
            "waits for shuffled data took 3.0 s of the 10.0 s that its tasks ran",
        ),
        (
            measured(5.0, 5.0, cpu=2.0),
            {"python_functions": ("price",)},
            "8.0 s of the 10.0 s that its tasks ran passed outside of Spark's threads, while Python ran price",
        ),
        (
            measured(5.0, 5.0, cpu=2.0),
            {},
            "8.0 s of the 10.0 s that its tasks ran passed outside of Spark's threads, in waits for files, or for other processes",
        ),
    ],
)
def test_causes_from_the_measurements_of_tasks(stage: Stage, more: Any, expected: str) -> None:
    slow = step("a", (0, 10), stages=(stage,), rows_in=9, **more)
    assert next(reasons_of_time(slow, [slow])) == expected


def test_wait_while_other_steps_run() -> None:
    waits = step("a", (0, 10), stages=(ran(1.0),), busy=((9, 10),))
    assert next(reasons_of_time(waits, [waits, step("b", (0, 8))])) == (
        "its tasks ran for only 1.0 s; 9.0 s passed before them, while tasks of other steps ran"
    )


@pytest.mark.parametrize(
    ("seconds", "busy", "expected"),
    [
        (
            10.0,
            (1.0, 7.0),
            [
                (
                    "its tasks ran for 6.0 s; 1.0 s passed before them, while Spark planned the step; 3.0 s passed after them, while "
                    "its rows were collected and the broadcast table was built"
                )
            ],
        ),
        (10.0, (1.0, 9.5), ["the work itself: 8.5 s of run time in 1 task"]),  # too small a fraction of its duration
        (1.0, (0.2, 0.95), ["the work itself: 0.75 s of run time in 1 task"]),  # too short
    ],
)
def test_long_waits_of_a_busy_step(seconds: float, busy: Any, expected: list[str]) -> None:
    slow = step("a", (0, seconds), stages=(ran(busy[1] - busy[0]),), busy=(busy,), is_broadcast=True)
    assert list(reasons_of_time(slow, [slow])) == expected


def test_tasks_before_their_step_do_not_count() -> None:
    keys = step("a", (2, 10), stages=(ran(1.0, 0.5, 0.5),), busy=((0, 2.5), (6, 6.5)))
    assert list(reasons_of_time(keys, [keys, step("b", (2, 6))])) == [
        (
            "its tasks ran for only 1.0 s; 3.5 s passed between them, while tasks of other steps ran; "
            "3.5 s passed after them, while its output was measured"
        ),
        "its 3 tasks, some before the step started, ran for 2.0 s in total; they ran sequentially",
    ]


def test_partial_aggregation_is_mentioned() -> None:
    slow = step("a", (0, 1), label="t → partial aggregate by k", rows_in=9000, rows_out=10, bytes_out=100)
    assert list(reasons_of_time(slow, [slow])) == ["it read 9,000 rows and wrote 10 rows, 100 B, partially aggregated"]
