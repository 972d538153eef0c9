"""Where the time of a job went: steps as they were recorded, the longest chain, and when nothing ran."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.web.stages import Stage
from penstock.web.steps import Step, merged, steps_of
from penstock.web.timing import Timing, critical_path, idle
from tests.history.records import record, task
from tests.web.test_stages import figures


def step(name: str, ran: Any, inputs: str = "", **more: Any) -> Step:
    values: dict[str, Any] = {
        "id": name,
        "number": name,
        "label": f"does {name}",
        "state": "finished",
        "reason": "",
        "tasks": 1,
        "ran": ran,
        "busy": () if ran is None else (ran,),
        "stages": (),
        "rows_in": None,
        "rows_out": None,
        "bytes_in": None,
        "bytes_out": None,
        "spilled": None,
        "inputs": tuple(inputs),
        "source": "",
        "is_broadcast": False,
        "is_left": False,
    }
    return Step(**(values | more))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], ""),
        ([step("a", None)], ""),
        ([step("a", (0, 1))], "a"),
        ([step("a", (0, 1)), step("b", (1, 3), "a")], "ab"),
        # the later of two inputs
        ([step("a", (0, 1)), step("b", (0, 2)), step("c", (2.1, 3), "ab")], "bc"),
        # another step ended after the last input, but c has begun at once after the input
        ([step("a", (0, 2)), step("b", (0, 2.1)), step("c", (2.15, 3), "a")], "ac"),
        # a source that was held back waited for what ended last before it
        ([step("a", (0, 2)), step("b", (2.1, 5))], "ab"),
        # long after its input: it was held back by b
        ([step("a", (0, 1)), step("b", (0, 4)), step("c", (4.1, 6), "a")], "bc"),
        # what ran beside is no part of it
        ([step("a", (0, 1)), step("b", (0, 2.5)), step("c", (1, 3), "a")], "ac"),
        # two steps of no time at one moment do not wait for each other
        ([step("a", (1, 1)), step("b", (1, 1))], "a"),
    ],
)
def test_the_chain_of_steps_that_the_end_waited_for(steps: Any, expected: str) -> None:
    assert critical_path(steps) == tuple(expected)


@pytest.mark.parametrize(
    ("busy", "total", "expected"),
    [
        ([], 2.0, [(0.0, 2.0)]),
        ([(0.0, 2.0)], 2.0, []),
        ([(0.5, 1.0), (1.02, 1.5)], 2.0, [(0.0, 0.5), (1.5, 2.0)]),
        ([(0.0, 1.0), (0.2, 0.4), (1.5, 2.0)], 2.0, [(1.0, 1.5)]),
    ],
)
def test_when_no_task_ran(busy: Any, total: float, expected: Any) -> None:
    steps = [step(str(number), times) for number, times in enumerate(busy)]
    assert idle(steps, total) == expected
    assert Timing.of(steps, total).idle_seconds == pytest.approx(sum(end - start for start, end in expected))


def test_times_without_overlaps() -> None:
    assert merged([(3, 4), (0, 1), (1, 2), (0.5, 0.6)]) == [(0, 2), (3, 4)]


def test_a_step_has_what_was_recorded_of_it() -> None:
    made = record()
    stages = [
        {
            "id": 1,
            "attempt": 0,
            "tasks": 3,
            "bytes_in": 10,
            "bytes_out": 5,
            "rows_in": 7,
            "rows_out": 1,
            "spilled": 40,
            "seconds": 1.4,
        },
        {
            "id": 2,
            "attempt": 0,
            "tasks": 0,
            "bytes_in": 10,
            "bytes_out": 5,
            "rows_in": 9,
            "rows_out": 1,
            "spilled": 2,
            "seconds": 0.0,
        },
    ]
    made.apply({"type": "tasks", "at": 12.5, "vertex": "v1", "tasks": made.tasks["v1"], "stages": stages})
    first, second = steps_of(made, 30.0)
    assert (first.number, first.ran, first.seconds, first.tasks) == ("1", (1.0, 2.5), 1.5, 3)
    assert first.busy == ((1.0, 2.2),)
    assert (first.rows_in, first.rows_out, first.spilled) == (9, 50, 42)
    assert first.stages == (Stage(1, 3, 1.4, (0.1, 0.1, 1.2)),)
    assert second.inputs == ("v1",)
    assert (second.rows_in, second.spilled, second.stages) == (None, None, ()), "nothing was recorded"


def test_of_more_tasks_than_were_recorded_the_whole_time_counts() -> None:
    made = record()
    tasks = [task(0, 0.1)]
    made.apply({"type": "tasks", "at": 12.5, "vertex": "v1", "tasks": tasks, "stages": [figures(1, 900, 9.0)]})
    (first, _) = steps_of(made, 30.0)
    assert first.busy == ((1.0, 2.5),)
    assert (first.tasks_run, first.task_seconds) == (900, 9.0)


def test_a_step_that_runs_ends_now() -> None:
    made = record(ended=False)
    made.apply({"type": "vertex", "at": 11.0, "id": "v1", "state": "RUNNING", "timestamps": {"RUNNING": 12.0}})
    assert steps_of(made, 15.0)[0].ran == (2.0, 5.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("of_spark", "measured", "is_left", "wrote"),
    [
        (True, {}, False, "500 B"),
        (True, {"bytes_out": -1, "rows_out": -1}, True, "not in the job"),
        (False, {"bytes_out": -1, "rows_out": -1}, False, "?"),
        (True, {"bytes_out": -1}, False, "?"),  # its rows were counted, so it ran
    ],
)
def test_what_spark_runs_after_the_job_has_no_figures_of_it(
    of_spark: bool, measured: dict[str, int], is_left: bool, wrote: str
) -> None:
    made = record()
    made.query = {"of_spark": of_spark}
    made.vertices["v1"] |= measured
    made.apply({"type": "tasks", "at": 12.5, "vertex": "v1", "tasks": [], "stages": [figures(1, 9, 9.0)]})
    (first, _) = steps_of(made, 30.0)
    assert (first.is_left, first.wrote) == (is_left, wrote)
    assert (first.rows_in is None, first.other_tasks) == (is_left, 0 if is_left else 6)
