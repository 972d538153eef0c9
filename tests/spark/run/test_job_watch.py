"""Jobs that are cancelled because of their metrics so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spark.run import jobs
from penstock.spark.run.jobs import JobWatch, StageFigures, StageRun

LIMIT = 100
BRIDGE: Any = None


def running(returned: int) -> list[tuple[StageRun, StageFigures]]:
    return [(StageRun(3, 10, 1), StageFigures(3, 0, 1, 0, 0, 0, 0, 0, 1.0, returned))]


def fail(*_: Any) -> Any:
    raise RuntimeError("there is no Spark any more")


# The running stages at each check, the cancel function, the number of cancelled jobs, and `has_cancelled`.
CASES: dict[str, tuple[list[Any], Callable[..., None] | None, int, bool]] = {
    "nothing runs": ([[], []], None, 0, False),
    "few rows": ([running(1), running(LIMIT)], None, 0, False),
    "too much, at the third check": ([[], running(1), running(LIMIT + 1), running(LIMIT + 2)], None, 1, True),
    "the check fails": ([None], None, 0, False),
    "the cancel fails": ([running(LIMIT + 1)], fail, 0, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_watch(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    checks, cancel, cancelled, has_cancelled = CASES[case]
    remaining, tags = list(checks), []

    def running_stages(bridge: Any, tag: str) -> Any:
        assert tag == "the tag"
        stages = remaining.pop(0) if remaining else []
        return fail() if stages is None else stages

    monkeypatch.setattr(jobs, "_WATCH_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "running_stages", running_stages)
    monkeypatch.setattr(jobs, "cancel_tag", cancel or (lambda bridge, tag, reason: tags.append(tag)))
    watch = JobWatch(BRIDGE, lambda stage, figures: figures.returned > LIMIT)
    with watch.monitor_jobs("the tag"):
        deadline = time.monotonic() + 5
        while remaining and not watch.has_cancelled and time.monotonic() < deadline and case != "the cancel fails":
            time.sleep(0.01)
        time.sleep(0.05)
    assert (len(tags), watch.has_cancelled) == (cancelled, has_cancelled)


def test_a_short_job_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "running_stages", fail)
    watch = JobWatch(BRIDGE, lambda *_: True)
    began = time.monotonic()
    with watch.monitor_jobs("the tag"):
        pass
    assert time.monotonic() - began < 0.5
    assert not watch.has_cancelled
