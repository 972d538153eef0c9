"""The user's line that something was asked for at."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock.location import callers_line
from penstock.threads import DaemonPool


def test_the_line_of_a_caller() -> None:
    line = callers_line()
    assert line is not None
    assert line.short.startswith("test_location.py:")


def test_a_thread_that_is_penstock_s_own_has_none() -> None:
    assert DaemonPool(1, "own").submit(callers_line).result() is None


def test_a_pool_of_the_user_s_has_their_line() -> None:
    with ThreadPoolExecutor(1) as pool:
        line = pool.submit(lambda: callers_line()).result()
    assert line is not None
    assert line.short.startswith("test_location.py:")
