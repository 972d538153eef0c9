"""Comparison of two runs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.web.comparison import Comparison
from tests.history.records import record, vertex


def stage(rows: int, spilled: int = 0) -> dict[str, Any]:
    return {
        "id": 1,
        "attempt": 0,
        "tasks": 3,
        "bytes_in": 0,
        "bytes_out": 0,
        "rows_in": rows,
        "rows_out": 0,
        "spilled": spilled,
        "seconds": 1.0,
    }


def decision(index: int, kind: str, sentence: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "decision",
        "index": index,
        "at": 11.0,
        "kind": kind,
        "subject": "1 x",
        "nodes": ["1"],
        "chosen": "x",
        "reason": "",
        "figures": {},
        "outcome": {},
        "sentence": sentence,
        "shown": True,
        **more,
    }


def run(rows: int, seconds: float, *decisions: dict[str, Any], job_id: str = "0123456789ab", **config: str) -> Any:
    job = record(job_id=job_id)
    job.decisions.clear()
    job.apply({"type": "nodes", "at": 1.0, "nodes": [job.nodes["1"].values | {"kind": "Source", "label": "orders"}]})
    times = {"CREATED": 10.0, "RUNNING": 11.0, "FINISHED": 11.0 + seconds}
    job.apply(vertex(1, [1], "FINISHED", label="read orders", timestamps=times, bytes_in=10 * rows))
    job.apply({"type": "tasks", "at": 12.0, "vertex": "v1", "tasks": [], "stages": [stage(rows)]})
    for event in decisions:
        job.apply(event)
    job.config = {key: {"value": value, "origin": "x"} for key, value in config.items()}
    return job


def test_differences_between_two_runs() -> None:
    before = run(
        1000,
        2.0,
        decision(0, "broadcast", "orders shuffled, as it is 20 MiB"),
        decision(1, "exchange", "same, as 1"),
        x="1",
    )
    after = run(
        5000,
        6.0,
        decision(0, "broadcast", "orders broadcast, as it is 5 MiB"),
        decision(1, "exchange", "same, as 2"),
        x="2",
    )
    comparison = Comparison.of(before, after, 30.0)
    assert [(str(source), source.factor) for source in comparison.sources] == [
        ("5,000 rows of orders were read, 1,000 before", 5.0)
    ]
    assert [(difference.before, difference.after) for difference in comparison.decisions] == [
        ("orders shuffled, as it is 20 MiB", "orders broadcast, as it is 5 MiB")
    ]
    assert [(option.name, option.before, option.after) for option in comparison.options] == [("x", "1", "2")]
    assert {figure.name: (figure.before, figure.after, figure.change) for figure in comparison.figures}[
        "Rows read"
    ] == (
        "1,000 rows",
        "5,000 rows",
        "5.0 times as much",
    )
    assert comparison.sentences == [
        "5,000 rows of orders were read, 1,000 before",
        "now: orders broadcast, as it is 5 MiB; before: orders shuffled",
        "x is 2 instead of 1",
        "read orders: 4.0 s slower",
        "No task ran for 4.0 s, in the earlier run for 8.0 s",
    ]
    (first, *_) = comparison.steps
    assert (first.label, first.slowdown) == ("read orders", 4.0)


def test_steps_that_explain_the_slowdown_come_first() -> None:
    before, after = run(1000, 5.0), run(1000, 3.0)
    times = {"RUNNING": 20.0, "FINISHED": 29.0}
    after.apply(vertex(9, [], "FINISHED", label="only now", timestamps=times))
    after.ended = before.ended + 7.0
    sentences = [
        text for text in Comparison.of(before, after, 40.0).sentences if " s" in text and "No task" not in text
    ]
    assert sentences == ["new step: only now, 9.0 s", "read orders: 2.0 s faster"]
    after.ended = before.ended - 1.0
    sentences = [
        text for text in Comparison.of(after, before, 40.0).sentences if " s" in text and "No task" not in text
    ]
    assert sentences == ["read orders: 2.0 s slower", "removed step: only now, 9.0 s"]


def test_equal_runs_have_no_differences() -> None:
    comparison = Comparison.of(run(1000, 2.0), run(1040, 2.1), 30.0)
    same = ["All decisions are the same, and about as many rows were read"]
    assert (comparison.sentences, comparison.sources, comparison.decisions, comparison.options) == (same, (), (), ())


def test_new_and_removed_steps_and_decisions() -> None:
    before, after = run(1000, 2.0), run(1000, 2.0, decision(0, "broadcast", "orders broadcast"))
    after.apply(vertex(9, [], "FINISHED", label="only now"))
    comparison = Comparison.of(before, after, 30.0)
    assert [(step.label, step.before is None, step.after is None) for step in comparison.steps][-1] == (
        "only now",
        True,
        False,
    )
    assert [(difference.before, difference.after) for difference in comparison.decisions] == [
        (None, "orders broadcast")
    ]
    back = Comparison.of(after, before, 30.0)
    assert [(step.label, step.before is None, step.after is None) for step in back.steps][-1] == (
        "only now",
        False,
        True,
    )
    assert [(difference.before, difference.after) for difference in back.decisions] == [("orders broadcast", None)]
    assert back.sentences == ["no longer: orders broadcast", "removed step: only now, 1.5 s"]


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "CANCELED"])
def test_missing_decisions_of_an_unfinished_run_are_no_difference(state: str) -> None:
    whole = run(1000, 2.0, decision(0, "broadcast", "orders broadcast"))
    half = run(1000, 2.0, decision(0, "exchange", "an exchange is avoided"))
    half.state = state
    comparison = Comparison.of(whole, half, 30.0)
    assert [(difference.before, difference.after) for difference in comparison.decisions] == [
        (None, "an exchange is avoided")
    ]
    back = Comparison.of(half, whole, 30.0)
    assert [(difference.before, difference.after) for difference in back.decisions] == [
        ("an exchange is avoided", None)
    ]


def test_totals_of_a_running_job_are_not_compared() -> None:
    before, after = run(60_000_000, 8.0), run(1_200_000, 2.0)
    after.state, after.ended = "RUNNING", None
    after.apply({"type": "vertex", "at": 12.0, "id": "v1", "state": "RUNNING", "timestamps": {"RUNNING": 11.0}})
    comparison = Comparison.of(before, after, 12.0)
    assert comparison.is_running
    assert {figure.change for figure in comparison.figures} == {""}
    assert comparison.steps[0].slowdown is None
    assert comparison.sentences == ["1.2 M rows of orders were read, 60.0 M before"]
    assert not Comparison.of(after, before, 12.0).is_running
