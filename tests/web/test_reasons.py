"""Why a step took its time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.web.reasons import reasons_of_time
from penstock.web.stages import Stage
from tests.web.test_timing import step


def ran(*seconds: float, tasks: int = 0, total: float = 0.0, number: int = 1) -> Stage:
    """Return a stage whose tasks took some seconds; of more tasks than these, only the first were recorded."""
    return Stage(number, tasks or len(seconds), total or sum(seconds), seconds)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            step("a", (0, 6), stages=(ran(4.0, 5.0),), busy=((0, 5),)),
            ["its 2 tasks ran for 9.0 s, added up; 1.8 ran at a time on average"],
        ),
        # Spark counts less than a task's whole time, which the chart shows
        (
            step("a", (0, 6), stages=(ran(4.0, 5.0, total=6.0),), busy=((0, 5),)),
            ["its 2 tasks ran for 9.0 s, added up; 1.8 ran at a time on average"],
        ),
        (
            step("a", (0, 10), stages=(ran(1.0),), busy=((9, 10),)),
            ["its tasks ran for 1.0 s only; 9.0 s passed before them, as Spark planned it"],
        ),
        (
            step("a", (0, 10), stages=(ran(1.0),), busy=((4, 5),), is_broadcast=True),
            [
                (
                    "its tasks ran for 1.0 s only; 4.0 s passed before them, as Spark planned it; 5.0 s passed after them, "
                    "as its rows were collected, and the table to broadcast was built"
                ),
            ],
        ),
        (
            step("a", (0, 10), stages=(ran(1.0, 1.0, 9.0),)),
            [
                "rows are skewed: its slowest task took 9.0 s, the median 1.0 s",
                "its 3 tasks ran for 11.0 s, added up; 1.1 ran at a time on average",
            ],
        ),
        # of a thousand tasks two hundred were recorded
        (
            step("a", (0, 100), stages=(ran(*[1.0] * 200, tasks=1000, total=1000.0),)),
            ["its 1,000 tasks ran for 16 min 40 s, added up; 10.0 ran at a time on average"],
        ),
        (
            step("a", (0, 20), stages=(ran(*[1.0] * 199, 9.0, tasks=1000, total=1008.0),)),
            [
                "rows are skewed: the slowest of its first 200 tasks took 9.0 s, the median 1.0 s",
                "its 1,000 tasks ran for 16 min 48 s, added up; 50.4 ran at a time on average",
            ],
        ),
        # tasks of one stage take longer than those of another: that is no skew
        (
            step("a", (0, 10), stages=(ran(*[0.1] * 5), ran(3.0, 3.0, 3.0, number=2))),
            ["its 8 tasks of 2 stages ran for 9.5 s, added up; they ran one after the other"],
        ),
        (
            step("a", (0, 10), stages=(ran(2.0, 2.0, 2.0), ran(0.1, 0.1, 2.5, number=2))),
            [
                "rows are skewed: its slowest task took 2.5 s, the median 0.10 s",
                "its 6 tasks of 2 stages ran for 8.7 s, added up; they ran one after the other",
            ],
        ),
        (
            step("a", (0, 10), spilled=1 << 20, rows_in=5_000_000, bytes_in=1 << 30),
            [
                "1.0 MiB did not fit into memory and went over the disk",
                "it read 5.0 M rows, 1.0 GiB (more than any other step)",
            ],
        ),
        (step("a", (0, 10), rows_in=1), ["it read 1 row"]),
        (step("a", None), []),
    ],
)
def test_why_a_step_took_its_time(made: Any, expected: Any) -> None:
    assert list(reasons_of_time(made, [made, step("b", (0, 1), rows_in=2)])) == expected


def test_a_step_that_waits_while_others_run_says_so() -> None:
    waits = step("a", (0, 10), stages=(ran(1.0),), busy=((9, 10),))
    assert next(reasons_of_time(waits, [waits, step("b", (0, 8))])) == (
        "its tasks ran for 1.0 s only; 9.0 s passed before them, while tasks of other steps ran"
    )


@pytest.mark.parametrize(
    ("seconds", "busy", "expected"),
    [
        (
            10.0,
            (1.0, 7.0),
            [
                (
                    "its tasks ran for 6.0 s; 1.0 s passed before them, as Spark planned it; 3.0 s passed after them, as its "
                    "rows were collected, and the table to broadcast was built"
                )
            ],
        ),
        (10.0, (1.0, 9.5), []),  # too small a part of its time
        (1.0, (0.2, 0.95), []),  # too short
    ],
)
def test_a_step_that_mostly_ran_tells_long_waits_too(seconds: float, busy: Any, expected: list[str]) -> None:
    made = step("a", (0, seconds), stages=(ran(busy[1] - busy[0]),), busy=(busy,), is_broadcast=True)
    assert list(reasons_of_time(made, [made])) == expected


def test_tasks_that_ran_before_their_step_are_no_time_of_it() -> None:
    keys = step("a", (2, 10), stages=(ran(1.0, 0.5, 0.5),), busy=((0, 2.5), (6, 6.5)))
    assert list(reasons_of_time(keys, [keys, step("b", (2, 6))])) == [
        (
            "its tasks ran for 1.0 s only; 3.5 s passed between them, while tasks of other steps ran; "
            "3.5 s passed after them, as it was measured"
        ),
        "its 3 tasks, some before it began, ran for 2.0 s, added up; they ran one after the other",
    ]


def test_what_was_aggregated_on_the_way_is_told() -> None:
    made = step("a", (0, 1), label="t → partial aggregate by k", rows_in=9000, rows_out=10, bytes_out=100)
    assert list(reasons_of_time(made, [made])) == ["it read 9,000 rows and wrote 10 rows, 100 B, aggregated on the way"]
