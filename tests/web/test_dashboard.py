"""All jobs together."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.history.summaries import Summary
from penstock.web import pages
from penstock.web.dashboard import Dashboard, Digest
from tests.web.test_comparison import run, told

DAY = 86_400.0


def summary(number: int, days_ago: float, now: float, state: str = "FINISHED") -> Summary:
    started = now - days_ago * DAY
    return Summary(f"{number:012x}", "nightly", state, started, started + 1, started, {})


def digest(number: int, days_ago: float, now: float, made: Any) -> Digest:
    made.id, made.name, made.started = f"{number:012x}", "nightly", now - days_ago * DAY
    return Digest.of(made)


def test_all_jobs_together() -> None:
    now = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    missed = {
        "what": "bytes of orders",
        "unit": "bytes",
        "foreseen": 10,
        "came": 1000,
        "missed_by": 100,
        "text": "10 B foreseen, 1000 B came",
    }
    slightly = missed | {"came": 30, "missed_by": 3.0, "text": "10 B foreseen, 30 B came"}
    old = run(1000, 1.0, told(0, "broadcast", "a", not_shuffled=1 << 20, estimate=slightly))
    new = run(
        3000,
        1.0,
        told(0, "broadcast", "a", not_shuffled=2 << 20, estimate=missed),
        told(1, "exchange", "b"),
        told(2, "exchange", "c", shown=False),
    )
    jobs = [summary(2, 0, now), summary(1, 2, now), summary(3, 2, now, "FAILED")]
    found = Dashboard.of(jobs, [digest(2, 0, now, new), digest(1, 2, now, old)], now)
    assert (found.jobs, found.looked, found.states) == (3, 2, (("finished", 2), ("failed", 1)))
    assert [(one.name, one.value) for one in found.days][-3:] == [("18 Nov", 2), ("19 Nov", 0), ("20 Nov", 1)]
    assert len(found.days) == 7
    assert [one.told for one in found.not_shuffled_days][-3:] == ["1.0 MiB", "0 B", "2.0 MiB"]
    assert found.not_shuffled == 3 << 20
    assert found.kinds == (("broadcast", 2), ("exchange", 1))
    assert [(one.estimate.off_by, one.job) for one in found.misses] == [
        ("100 times", f"{2:012x}"),
        ("3.0 times", f"{1:012x}"),
    ]
    assert [(str(one.growth), one.job) for one in found.grown] == [
        ("3,000 rows of orders were read, 1,000 before", f"{2:012x}")
    ]


def test_runs_that_did_not_finish_tell_nothing_of_their_sources() -> None:
    """One that was cancelled has read but a part, and the next one seems to have grown."""
    now = time.time()
    runs = [run(1000, 1.0), run(10, 1.0), run(1050, 1.0)]
    runs[1].state = "CANCELED"
    digests = [digest(number, 3 - number, now, made) for number, made in enumerate(runs)]
    assert Dashboard.of([], digests, now).grown == ()
    assert Dashboard.of([], digests[1:], now).grown == ()
    runs[2] = run(2000, 1.0)
    digests[2] = digest(2, 1, now, runs[2])
    assert [one.growth.factor for one in Dashboard.of([], digests, now).grown] == [2.0]


def test_estimates_of_which_nothing_came() -> None:
    nothing = {
        "what": "bytes of orders",
        "unit": "bytes",
        "foreseen": 20 << 20,
        "came": 0,
        "missed_by": 20_971_520,
        "text": "20.0 MiB foreseen, 0 B came (missed)",
    }
    slightly = nothing | {"what": "bytes of users", "foreseen": 8 << 20, "came": 20 << 20, "missed_by": 2.5}
    little = nothing | {"what": "bytes of items", "foreseen": 5 << 20, "missed_by": 5_242_880}
    made = [told(number, "exchange", "a", estimate=one) for number, one in enumerate((slightly, little, nothing))]
    found = Dashboard.of([], [digest(1, 0, 1e9, run(10, 1.0, *made))], 1e9)
    assert [(one.estimate.what, one.estimate.off_by) for one in found.misses] == [
        ("bytes of orders", "nothing came"),
        ("bytes of items", "nothing came"),
        ("bytes of users", "2.5 times"),
    ]
    page = pages.dashboard(found)
    assert "2.5 times" in page
    assert "20,971,520" not in page


@pytest.mark.parametrize(("oldest", "days"), [(0, 7), (9.9, 11), (200, 30)])
def test_how_many_days_are_shown(oldest: float, days: int) -> None:
    now = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    assert len(Dashboard.of([summary(1, oldest, now)], [], now).days) == days


def test_no_jobs() -> None:
    found = Dashboard.of([], [], time.time())
    assert (found.jobs, found.not_shuffled, found.misses, found.grown) == (0, 0, (), ())
