"""Two runs side by side."""

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


def told(index: int, kind: str, sentence: str, **more: Any) -> dict[str, Any]:
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
    made = record(job_id=job_id)
    made.decisions.clear()
    made.apply({"type": "nodes", "at": 1.0, "nodes": [made.nodes["1"] | {"kind": "Source", "label": "orders"}]})
    times = {"CREATED": 10.0, "RUNNING": 11.0, "FINISHED": 11.0 + seconds}
    made.apply(vertex(1, [1], "FINISHED", label="read orders", timestamps=times, bytes_in=10 * rows))
    made.apply({"type": "tasks", "at": 12.0, "vertex": "v1", "tasks": [], "stages": [stage(rows)]})
    for one in decisions:
        made.apply(one)
    made.config = {key: {"value": value, "origin": "x"} for key, value in config.items()}
    return made


def test_what_differs_is_told() -> None:
    before = run(
        1000, 2.0, told(0, "broadcast", "orders shuffled, as it is 20 MiB"), told(1, "exchange", "same, as 1"), x="1"
    )
    after = run(
        5000, 6.0, told(0, "broadcast", "orders broadcast, as it is 5 MiB"), told(1, "exchange", "same, as 2"), x="2"
    )
    found = Comparison.of(before, after, 30.0)
    assert [(str(one), one.factor) for one in found.sources] == [("5,000 rows of orders were read, 1,000 before", 5.0)]
    assert [(one.before, one.after) for one in found.choices] == [
        ("orders shuffled, as it is 20 MiB", "orders broadcast, as it is 5 MiB")
    ]
    assert [(one.name, one.before, one.after) for one in found.options] == [("x", "1", "2")]
    assert {one.name: (one.before, one.after, one.change) for one in found.figures}["Rows read"] == (
        "1,000 rows",
        "5,000 rows",
        "5.0 times as much",
    )
    assert found.sentences == [
        "5,000 rows of orders were read, 1,000 before",
        "now: orders broadcast, as it is 5 MiB; before: orders shuffled",
        "x is 2 instead of 1",
        "read orders: 4.0 s longer",
        "No task ran for 4.0 s, in the run before for 8.0 s",
    ]
    (first, *_) = found.steps
    assert (first.label, first.more_seconds) == ("read orders", 4.0)


def test_the_steps_that_explain_a_slower_run_come_first() -> None:
    before, after = run(1000, 5.0), run(1000, 3.0)
    times = {"RUNNING": 20.0, "FINISHED": 29.0}
    after.apply(vertex(9, [], "FINISHED", label="only now", timestamps=times))
    after.ended = before.ended + 7.0
    told_of = [text for text in Comparison.of(before, after, 40.0).sentences if " s" in text and "No task" not in text]
    assert told_of == ["new: only now, 9.0 s", "read orders: 2.0 s less"]
    after.ended = before.ended - 1.0
    told_of = [text for text in Comparison.of(after, before, 40.0).sentences if " s" in text and "No task" not in text]
    assert told_of == ["read orders: 2.0 s longer", "gone: only now, 9.0 s"]


def test_the_same_run_differs_in_nothing() -> None:
    found = Comparison.of(run(1000, 2.0), run(1040, 2.1), 30.0)
    same = ["Nothing was decided differently, and about as many rows were read"]
    assert (found.sentences, found.sources, found.choices, found.options) == (same, (), (), ())


def test_steps_and_decisions_that_one_run_has_only() -> None:
    before, after = run(1000, 2.0), run(1000, 2.0, told(0, "broadcast", "orders broadcast"))
    after.apply(vertex(9, [], "FINISHED", label="only now"))
    found = Comparison.of(before, after, 30.0)
    assert [(one.label, one.before is None, one.after is None) for one in found.steps][-1] == ("only now", True, False)
    assert [(one.before, one.after) for one in found.choices] == [(None, "orders broadcast")]
    back = Comparison.of(after, before, 30.0)
    assert [(one.label, one.before is None, one.after is None) for one in back.steps][-1] == ("only now", False, True)
    assert [(one.before, one.after) for one in back.choices] == [("orders broadcast", None)]
    assert back.sentences == ["no longer: orders broadcast", "gone: only now, 1.5 s"]


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "CANCELED"])
def test_what_a_run_did_not_come_to_is_no_difference(state: str) -> None:
    whole = run(1000, 2.0, told(0, "broadcast", "orders broadcast"))
    half = run(1000, 2.0, told(0, "exchange", "one exchange less"))
    half.state = state
    found = Comparison.of(whole, half, 30.0)
    assert [(one.before, one.after) for one in found.choices] == [(None, "one exchange less")]
    back = Comparison.of(half, whole, 30.0)
    assert [(one.before, one.after) for one in back.choices] == [("one exchange less", None)]


def test_a_run_that_goes_on_is_not_measured_against_one_that_ended() -> None:
    before, after = run(60_000_000, 8.0), run(1_200_000, 2.0)
    after.state, after.ended = "RUNNING", None
    after.apply({"type": "vertex", "at": 12.0, "id": "v1", "state": "RUNNING", "timestamps": {"RUNNING": 11.0}})
    found = Comparison.of(before, after, 12.0)
    assert found.is_running
    assert {one.change for one in found.figures} == {""}
    assert found.steps[0].more_seconds is None
    assert found.sentences == ["1.2 M rows of orders were read, 60.0 M before"]
    assert not Comparison.of(after, before, 12.0).is_running
