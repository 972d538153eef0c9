"""The figures over all jobs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.history.summaries import Summary
from penstock.web import pages
from penstock.web.dashboard import Dashboard, Digest
from tests.web.test_comparison import decision, run

DAY = 86_400.0


def summary(number: int, days_ago: float, now: float, state: str = "FINISHED") -> Summary:
    started = now - days_ago * DAY
    return Summary(f"{number:012x}", "nightly", state, started, started + 1, started, {})


def digest(number: int, days_ago: float, now: float, job: Any) -> Digest:
    job.id, job.name, job.started = f"{number:012x}", "nightly", now - days_ago * DAY
    return Digest.of(job)


def test_figures_over_all_jobs() -> None:
    now = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    missed = {
        "what": "bytes of orders",
        "unit": "bytes",
        "foreseen": 10,
        "came": 1000,
        "missed_by": 100,
        "text": "10 B estimated, 1000 B actual",
    }
    slightly = missed | {"came": 30, "missed_by": 3.0, "text": "10 B estimated, 30 B actual"}
    old = run(1000, 1.0, decision(0, "broadcast", "a", not_shuffled=1 << 20, estimate=slightly))
    new = run(
        3000,
        1.0,
        decision(0, "broadcast", "a", not_shuffled=2 << 20, estimate=missed),
        decision(1, "exchange", "b"),
        decision(2, "exchange", "c", shown=False),
    )
    jobs = [summary(2, 0, now), summary(1, 2, now), summary(3, 2, now, "FAILED")]
    dashboard = Dashboard.of(jobs, [digest(2, 0, now, new), digest(1, 2, now, old)], now)
    assert (dashboard.jobs, dashboard.analyzed, dashboard.states) == (3, 2, (("finished", 2), ("failed", 1)))
    assert [(day.name, day.value) for day in dashboard.days][-3:] == [("18 Nov", 2), ("19 Nov", 0), ("20 Nov", 1)]
    assert len(dashboard.days) == 7
    assert [day.text for day in dashboard.not_shuffled_days][-3:] == ["1.0 MiB", "0 B", "2.0 MiB"]
    assert dashboard.not_shuffled == 3 << 20
    assert dashboard.kinds == (("broadcast", 2), ("exchange", 1))
    assert [(miss.estimate.error_text, miss.job) for miss in dashboard.misses] == [
        ("100 times", f"{2:012x}"),
        ("3.0 times", f"{1:012x}"),
    ]
    assert [(str(source.growth), source.job) for source in dashboard.growing_sources] == [
        ("3,000 rows of orders were read, 1,000 before", f"{2:012x}")
    ]


def test_sources_of_unfinished_runs_are_ignored() -> None:
    """A cancelled run has read only a part, so the next run would seem to have grown."""
    now = time.time()
    runs = [run(1000, 1.0), run(10, 1.0), run(1050, 1.0)]
    runs[1].state = "CANCELED"
    digests = [digest(number, 3 - number, now, job) for number, job in enumerate(runs)]
    assert Dashboard.of([], digests, now).growing_sources == ()
    assert Dashboard.of([], digests[1:], now).growing_sources == ()
    runs[2] = run(2000, 1.0)
    digests[2] = digest(2, 1, now, runs[2])
    assert [source.growth.factor for source in Dashboard.of([], digests, now).growing_sources] == [2.0]


def test_estimates_with_an_actual_value_of_zero() -> None:
    nothing = {
        "what": "bytes of orders",
        "unit": "bytes",
        "foreseen": 20 << 20,
        "came": 0,
        "missed_by": 20_971_520,
        "text": "20.0 MiB estimated, 0 B actual (missed)",
    }
    slightly = nothing | {"what": "bytes of users", "foreseen": 8 << 20, "came": 20 << 20, "missed_by": 2.5}
    little = nothing | {"what": "bytes of items", "foreseen": 5 << 20, "missed_by": 5_242_880}
    estimates = enumerate((slightly, little, nothing))
    decisions = [decision(number, "exchange", "a", estimate=estimate) for number, estimate in estimates]
    dashboard = Dashboard.of([], [digest(1, 0, 1e9, run(10, 1.0, *decisions))], 1e9)
    assert [(miss.estimate.what, miss.estimate.error_text) for miss in dashboard.misses] == [
        ("bytes of orders", "actual 0"),
        ("bytes of items", "actual 0"),
        ("bytes of users", "2.5 times"),
    ]
    page = pages.dashboard(dashboard)
    assert "2.5 times" in page
    assert "20,971,520" not in page


@pytest.mark.parametrize(("oldest", "days"), [(0, 7), (9.9, 11), (200, 30)])
def test_number_of_days(oldest: float, days: int) -> None:
    now = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    assert len(Dashboard.of([summary(1, oldest, now)], [], now).days) == days


def test_no_jobs() -> None:
    dashboard = Dashboard.of([], [], time.time())
    assert (dashboard.jobs, dashboard.not_shuffled, dashboard.misses, dashboard.growing_sources) == (0, 0, (), ())
