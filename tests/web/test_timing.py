"""The steps, the critical path and the idle times of a job."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from penstock.web.steps import Stage, Step, Timing, critical_path, idle_intervals, merge_intervals, steps_of
from tests.history.records import record, task
from tests.web.test_stages import figures


def step(name: str, span: Any, inputs: str = "", **more: Any) -> Step:
    values: dict[str, Any] = {
        "id": name,
        "number": name,
        "label": f"does {name}",
        "state": "finished",
        "reason": "",
        "tasks": 1,
        "span": span,
        "busy": () if span is None else (span,),
        "stages": (),
        "rows_in": None,
        "rows_out": None,
        "bytes_in": None,
        "bytes_out": None,
        "spilled": None,
        "inputs": tuple(inputs),
        "source": "",
        "is_broadcast": False,
        "ends_in_spark": False,
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
        # another step ended after the last input, but c started directly after the input
        ([step("a", (0, 2)), step("b", (0, 2.1)), step("c", (2.15, 3), "a")], "ac"),
        # a source that was held back waited for the step that ended last before it
        ([step("a", (0, 2)), step("b", (2.1, 5))], "ab"),
        # long after its input: it was held back by b
        ([step("a", (0, 1)), step("b", (0, 4)), step("c", (4.1, 6), "a")], "bc"),
        # a parallel step is not part of the path
        ([step("a", (0, 1)), step("b", (0, 2.5)), step("c", (1, 3), "a")], "ac"),
        # two simultaneous steps without duration do not wait for each other
        ([step("a", (1, 1)), step("b", (1, 1))], "a"),
    ],
)
def test_critical_path(steps: Any, expected: str) -> None:
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
def test_idle_times(busy: Any, total: float, expected: Any) -> None:
    steps = [step(str(number), times) for number, times in enumerate(busy)]
    assert idle_intervals(steps, total) == expected
    assert Timing.of(steps, total).idle_seconds == pytest.approx(sum(end - start for start, end in expected))


def test_merged_intervals() -> None:
    assert merge_intervals([(3, 4), (0, 1), (1, 2), (0.5, 0.6)]) == [(0, 2), (3, 4)]


def test_step_from_a_record() -> None:
    job = record()
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
    job.apply({"type": "tasks", "at": 12.5, "vertex": "v1", "tasks": map(asdict, job.tasks["v1"]), "stages": stages})
    first, second = steps_of(job, 30.0)
    assert (first.number, first.span, first.seconds, first.tasks) == ("1", (1.0, 2.5), 1.5, 3)
    assert first.busy == ((1.0, 2.2),)
    assert (first.rows_in, first.rows_out, first.spilled) == (9, 50, 42)
    assert first.stages == (Stage(1, 3, 1.4, (0.1, 0.1, 1.2), (2, 2, 2)),)
    assert second.inputs == ("v1",)
    assert (second.rows_in, second.spilled, second.stages) == (None, None, ()), "without recorded tasks"


def test_totals_count_if_tasks_were_not_recorded() -> None:
    job = record()
    tasks = [task(0, 0.1)]
    job.apply({"type": "tasks", "at": 12.5, "vertex": "v1", "tasks": tasks, "stages": [figures(1, 900, 9.0)]})
    (first, _) = steps_of(job, 30.0)
    assert first.busy == ((1.0, 2.5),)
    assert (first.tasks_run, first.task_seconds) == (900, 9.0)


def test_running_step_ends_now() -> None:
    job = record(ended=False)
    job.apply({"type": "vertex", "at": 11.0, "id": "v1", "state": "RUNNING", "timestamps": {"RUNNING": 12.0}})
    assert steps_of(job, 15.0)[0].span == (2.0, 5.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("of_spark", "measured", "ends_in_spark", "output_size"),
    [
        (True, {}, False, "500 B"),
        (True, {"bytes_out": -1, "rows_out": -1}, True, "in Spark"),
        (False, {"bytes_out": -1, "rows_out": -1}, False, "?"),
        (True, {"bytes_out": -1}, False, "?"),  # its rows were counted, so it ran in the job
    ],
)
def test_step_that_ends_in_spark_has_no_figures(
    of_spark: bool, measured: dict[str, int], ends_in_spark: bool, output_size: str
) -> None:
    job = record()
    job.query = {"of_spark": of_spark}
    job.vertices["v1"] = job.vertices["v1"].updated(measured)
    job.apply({"type": "tasks", "at": 12.5, "vertex": "v1", "tasks": [], "stages": [figures(1, 9, 9.0)]})
    (first, _) = steps_of(job, 30.0)
    assert (first.ends_in_spark, first.output_size) == (ends_in_spark, output_size)
    assert (first.rows_in is None, first.extra_tasks) == (ends_in_spark, 0 if ends_in_spark else 6)
