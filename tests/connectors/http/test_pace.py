"""How fast a service may be asked: any second has at most so many requests, however late they and their answers come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.http.pace import RateWindow, middle, tasks_worth


def arrivals(rate: float, waits: Any) -> list[float]:
    """Return when requests reach a service: each is asked for some time after the last permit, and takes its time."""
    window, now, found = RateWindow(rate), 0.0, []
    open_ones: list[Any] = []
    for idle, on_the_way, back in waits:
        asked = now + idle
        while True:
            for end, permit in sorted(open_ones, key=lambda one: one[0]):
                if end <= asked:
                    window.answered(permit, end)
                    open_ones.remove((end, permit))
            free = window.free_at(asked)
            if free <= asked:
                break
            asked = free
        now, permit = asked, window.take(asked)
        found.append(now + on_the_way)
        open_ones.append((now + on_the_way + back, permit))
    return sorted(found)


@given(
    rate=st.sampled_from([0.5, 1, 2.5, 7, 20]),
    waits=st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.1), st.floats(0, 3)), min_size=1, max_size=80),
)
def test_no_second_has_more(rate: float, waits: Any) -> None:
    found = arrivals(rate, waits)
    most = -(-rate // 1)
    seconds = most / rate
    for index, at in enumerate(found):
        assert sum(at <= other < at + seconds - 1e-6 for other in found[index:]) <= most


RATES: dict[str, tuple[float, float, float]] = {
    "quick answers": (50, 0.005, 48),
    "answers that take long": (50, 0.5, 44),
    "one in five seconds": (0.2, 0.01, 0.19),
}


@pytest.mark.parametrize("case", RATES)
def test_the_limit_is_nearly_reached(case: str) -> None:
    rate, back, least = RATES[case]
    found = arrivals(rate, [(0.0, 0.0, back)] * 500)
    assert rate >= (len(found) - 1) / (found[-1] - found[0]) >= least


WORTH: dict[str, tuple[tuple[Any, ...], int, str]] = {
    "as many as keep up": ((50, 0.2, 12, 10_000, 16), 10, "takes 200 ms (12 measured) and at most 50 are sent"),
    "a started one counts": ((50, 0.21, 12, None, 16), 11, "more tasks would only wait"),
    "a quick service": ((5, 0.002, 20, 10_000, 16), 1, "takes 2 ms"),
    "more than run at a time": (
        (100, 1.5, 3, 10_000, 4),
        150,
        "4 of them can run at a time, and send about 2.67 a second: with requests_at_a_time=38 they would reach",
    ),
    "more than run at a time, each several": (
        (20, 1.5, 3, 200, 2, 3),
        10,
        "about 4 a second: with requests_at_a_time=15",
    ),
    "few requests, and fewer cores": ((100, 0.5, 3, 7, 4), 7, "only 7 requests to send; 4 tasks can run at a time"),
    "few requests": ((100, 0.5, 3, 7, 16), 7, "only 7 requests"),
    "several at a time": ((50, 0.2, 12, 10_000, 16, 4), 3, "at most 50 are sent in a second, 4 at a time by a task"),
    "few requests, several at a time": ((100, 0.5, 3, 7, 16, 4), 2, "only 7 requests"),
    "no limit": ((None, 0.1, 20, 10_000, 8), 8, "nothing limits"),
    "no limit, and little to send": ((None, 0.01, 20, 150, 8), 3, "nothing limits"),
    "no limit, next to nothing to send": ((None, 0.01, 3, 3, 8), 1, "nothing limits"),
}


@pytest.mark.parametrize("case", WORTH)
def test_how_many_tasks_requests_are_worth(case: str) -> None:
    given_, tasks, words = WORTH[case]
    found = tasks_worth(*given_)
    assert found.tasks == tasks
    assert words in found.reason


def test_the_middle() -> None:
    assert middle([]) is None
    assert middle([3, 1, 2]) == 2
    assert middle([9, 1]) == 9
