"""Two runs side by side, and all jobs together."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.history.summaries import Summary
from penstock.web.comparison import Comparison
from penstock.web.dashboard import Dashboard, Digest
from tests.history.records import record, vertex

DAY = 86_400.0


def stage(rows: int, spilled: int = 0) -> dict[str, Any]:
    return {"id": 1, "attempt": 0, "tasks": 3, "bytes_in": 0, "bytes_out": 0, "rows_in": rows, "rows_out": 0, "spilled": spilled, "seconds": 1.0}  # fmt: skip


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
    assert [(str(one), one.factor) for one in found.sources] == [("orders grew from 1,000 rows to 5,000 rows", 5.0)]
    assert [(one.before, one.after) for one in found.choices] == [
        ("orders shuffled, as it is 20 MiB", "orders broadcast, as it is 5 MiB")
    ]
    assert [(one.name, one.before, one.after) for one in found.options] == [("x", "1", "2")]
    assert {one.name: (one.before, one.after, one.change) for one in found.figures}["Rows read"] == (
        "1,000 rows",
        "5,000 rows",
        "+400 %",
    )
    assert found.sentences == [
        "orders grew from 1,000 rows to 5,000 rows",
        "now: orders broadcast, as it is 5 MiB",
        "x is 2 instead of 1",
        "read orders: 4.0 s longer",
    ]
    (first, *_) = found.steps
    assert (first.label, first.more_seconds) == ("read orders", 4.0)


def test_the_same_run_differs_in_nothing() -> None:
    found = Comparison.of(run(1000, 2.0), run(1040, 2.1), 30.0)
    assert (found.sentences, found.sources, found.choices, found.options) == ([], (), (), ())


def test_steps_and_decisions_that_one_run_has_only() -> None:
    before, after = run(1000, 2.0), run(1000, 2.0, told(0, "broadcast", "orders broadcast"))
    after.apply(vertex(9, [], "FINISHED", label="only now"))
    found = Comparison.of(before, after, 30.0)
    assert [(one.label, one.before is None, one.after is None) for one in found.steps][-1] == ("only now", True, False)
    assert [(one.before, one.after) for one in found.choices] == [(None, "orders broadcast")]
    back = Comparison.of(after, before, 30.0)
    assert [(one.label, one.before is None, one.after is None) for one in back.steps][-1] == ("only now", False, True)
    assert [(one.before, one.after) for one in back.choices] == [("orders broadcast", None)]
    assert back.sentences == []


def summary(number: int, days_ago: float, now: float, state: str = "FINISHED") -> Summary:
    started = now - days_ago * DAY
    return Summary(f"{number:012x}", "nightly", state, started, started + 1, started, {})


def digest(number: int, days_ago: float, now: float, made: Any) -> Digest:
    made.id, made.name, made.started = f"{number:012x}", "nightly", now - days_ago * DAY
    return Digest.of(made)


def test_all_jobs_together() -> None:
    now = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    missed = {"what": "bytes of orders", "unit": "bytes", "foreseen": 10, "came": 1000, "missed_by": 100.0, "text": "10 B foreseen, 1000 B came"}  # fmt: skip
    slightly = missed | {"came": 30, "missed_by": 3.0, "text": "10 B foreseen, 30 B came"}
    old = run(1000, 1.0, told(0, "broadcast", "a", not_shuffled=1 << 20, estimate=slightly))
    new = run(3000, 1.0, told(0, "broadcast", "a", not_shuffled=2 << 20, estimate=missed), told(1, "exchange", "b"), told(2, "exchange", "c", shown=False))  # fmt: skip
    jobs = [summary(2, 0, now), summary(1, 2, now), summary(3, 2, now, "FAILED")]
    found = Dashboard.of(jobs, [digest(2, 0, now, new), digest(1, 2, now, old)], now)
    assert (found.jobs, found.looked, found.states) == (3, 2, (("finished", 2), ("failed", 1)))
    assert [(one.name, one.value) for one in found.days][-3:] == [("18 Nov", 2), ("19 Nov", 0), ("20 Nov", 1)]
    assert len(found.days) == 7
    assert [one.told for one in found.not_shuffled_days][-3:] == ["1.0 MiB", "0 B", "2.0 MiB"]
    assert found.not_shuffled == 3 << 20
    assert found.kinds == (("broadcast", 2), ("exchange", 1))
    assert [(one.by, one.job) for one in found.misses] == [(100.0, f"{2:012x}"), (3.0, f"{1:012x}")]
    assert [(str(one.growth), one.job) for one in found.grown] == [
        ("orders grew from 1,000 rows to 3,000 rows", f"{2:012x}")
    ]


@pytest.mark.parametrize(("oldest", "days"), [(0, 7), (9.9, 11), (200, 30)])
def test_how_many_days_are_shown(oldest: float, days: int) -> None:
    now = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    assert len(Dashboard.of([summary(1, oldest, now)], [], now).days) == days


def test_no_jobs() -> None:
    found = Dashboard.of([], [], time.time())
    assert (found.jobs, found.not_shuffled, found.misses, found.grown) == (0, 0, (), ())
