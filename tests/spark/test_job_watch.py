"""Jobs that are stopped for what they have done so far."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark import job_watch, jobs
from penstock.spark.job_watch import JobWatch
from penstock.spark.jobs import StageFigures, StageRun

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 100
BRIDGE: Any = None


def found(returned: int) -> list[tuple[StageRun, StageFigures]]:
    return [(StageRun(3, 10, 1), StageFigures(3, 0, 1, 0, 0, 0, 0, 0, 1.0, returned))]


def fail(*_: Any) -> Any:
    raise RuntimeError("there is no Spark any more")


# What running stages give, one look after the other; whether the cancel works; the jobs cancelled, and `has_stopped`.
CASES: dict[str, tuple[list[Any], Callable[..., None] | None, int, bool]] = {
    "nothing runs": ([[], []], None, 0, False),
    "little is given": ([found(1), found(LIMIT)], None, 0, False),
    "too much, at the third look": ([[], found(1), found(LIMIT + 1), found(LIMIT + 2)], None, 1, True),
    "it cannot be looked at": ([None], None, 0, False),
    "it cannot be cancelled": ([found(LIMIT + 1)], fail, 0, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_watch(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    looks, cancel, cancelled, has_stopped = CASES[case]
    left, made = list(looks), []

    def look(bridge: Any, tag: str) -> Any:
        assert tag == "the tag"
        one = left.pop(0) if left else []
        return fail() if one is None else one

    monkeypatch.setattr(job_watch, "_LOOK", 0.01)
    monkeypatch.setattr(jobs, "running_stages", look)
    monkeypatch.setattr(jobs, "cancel_tag", cancel or (lambda bridge, tag, why: made.append(tag)))
    watch = JobWatch(BRIDGE, lambda stage, figures: figures.returned > LIMIT)
    with watch.over("the tag"):
        until = time.monotonic() + 5
        while left and not watch.has_stopped and time.monotonic() < until and case != "it cannot be cancelled":
            time.sleep(0.01)
        time.sleep(0.05)
    assert (len(made), watch.has_stopped) == (cancelled, has_stopped)


def test_a_short_job_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "running_stages", fail)
    watch = JobWatch(BRIDGE, lambda *_: True)
    began = time.monotonic()
    with watch.over("the tag"):
        pass
    assert time.monotonic() - began < 0.5
    assert not watch.has_stopped
