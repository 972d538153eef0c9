"""The request rate of the HTTP sink: no second has more requests than the limit, whatever the network delays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.http.rate_limit import RateWindow, recommend_tasks


def arrivals(rate: float, waits: Any) -> list[float]:
    """Return the sorted times at which requests reach a service.

    `waits` has, for each request, the seconds from the last permit to this request, to the service, and back.
    """
    window, now, times = RateWindow(rate), 0.0, []
    in_flight: list[Any] = []
    for idle, transit, response in waits:
        start = now + idle
        while True:
            for end, permit in sorted(in_flight, key=lambda request: request[0]):
                if end <= start:
                    window.finish(permit, end)
                    in_flight.remove((end, permit))
            free = window.free_at(start)
            if free <= start:
                break
            start = free
        now, permit = start, window.take(start)
        times.append(now + transit)
        in_flight.append((now + transit + response, permit))
    return sorted(times)


@given(
    rate=st.sampled_from([0.5, 1, 2.5, 7, 20]),
    waits=st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.1), st.floats(0, 3)), min_size=1, max_size=80),
)
def test_no_second_has_more_requests_than_the_limit(rate: float, waits: Any) -> None:
    times = arrivals(rate, waits)
    limit = -(-rate // 1)
    seconds = limit / rate
    for index, at in enumerate(times):
        assert sum(at <= other < at + seconds - 1e-6 for other in times[index:]) <= limit


RATES: dict[str, tuple[float, float, float]] = {
    "fast responses": (50, 0.005, 48),
    "slow responses": (50, 0.5, 44),
    "a request in five seconds": (0.2, 0.01, 0.19),
}


@pytest.mark.parametrize("case", RATES)
def test_the_rate_is_close_to_the_limit(case: str) -> None:
    rate, response, min_rate = RATES[case]
    times = arrivals(rate, [(0.0, 0.0, response)] * 500)
    assert rate >= (len(times) - 1) / (times[-1] - times[0]) >= min_rate


TASKS: dict[str, tuple[tuple[Any, ...], int, str]] = {
    "enough tasks for the limit": ((50, 0.2, 12, 10_000, 16), 10, "takes 200 ms (12 measured) and at most 50 are sent"),
    "rounded up": ((50, 0.21, 12, None, 16), 11, "more tasks would only wait"),
    "a fast service": ((5, 0.002, 20, 10_000, 16), 1, "takes 2 ms"),
    "more than the cores": (
        (100, 1.5, 3, 10_000, 4),
        150,
        "4 tasks can run at a time, and send about 2.67 a second: with requests_at_a_time=38 they would reach",
    ),
    "more than the cores, several requests per task": (
        (20, 1.5, 3, 200, 2, 3),
        10,
        "about 4 a second: with requests_at_a_time=15",
    ),
    "few requests, and fewer cores": ((100, 0.5, 3, 7, 4), 7, "only 7 requests to send; 4 tasks can run at a time"),
    "few requests": ((100, 0.5, 3, 7, 16), 7, "only 7 requests"),
    "several requests per task": (
        (50, 0.2, 12, 10_000, 16, 4),
        3,
        "at most 50 are sent in a second, 4 at a time by a task",
    ),
    "few requests, several per task": ((100, 0.5, 3, 7, 16, 4), 2, "only 7 requests"),
    "no limit": ((None, 0.1, 20, 10_000, 8), 8, "no rate limit is set"),
    "no limit, few requests": ((None, 0.01, 20, 150, 8), 3, "no rate limit is set"),
    "no limit, three requests": ((None, 0.01, 3, 3, 8), 1, "no rate limit is set"),
}


@pytest.mark.parametrize("case", TASKS)
def test_the_number_of_tasks_follows_from_rate_and_response_time(case: str) -> None:
    arguments, tasks, fragment = TASKS[case]
    recommended = recommend_tasks(*arguments)
    assert recommended.tasks == tasks
    assert fragment in recommended.reason
