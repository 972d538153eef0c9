"""The line of the user's code that calls Penstock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock.base.location import current_user_line
from penstock.base.threads import DaemonPool


def test_the_line_of_the_calling_code_is_returned() -> None:
    line = current_user_line()
    assert line is not None
    assert line.short.startswith("test_location.py:")


def test_a_thread_of_penstock_has_no_line() -> None:
    assert DaemonPool(1, "own").submit(current_user_line).result() is None


def test_a_thread_of_the_users_pool_has_a_line() -> None:
    with ThreadPoolExecutor(1) as pool:
        line = pool.submit(lambda: current_user_line()).result()
    assert line is not None
    assert line.short.startswith("test_location.py:")
