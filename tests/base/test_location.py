"""The line of the user's code that calls Penstock."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.base.location import PACKAGE, current_user_line, user_line_of
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


def test_a_folder_whose_name_only_begins_like_that_of_penstock_is_the_users() -> None:
    file = f"{PACKAGE.rstrip('/')}_of_user/job.py"
    line: Any = eval(compile("current_user_line()", file, "eval"), {"current_user_line": current_user_line})
    assert line.file == file
    with pytest.raises(ZeroDivisionError) as caught:
        eval(compile("1 / 0", file, "eval"))
    assert str(user_line_of(caught.value)) == f"{file}:1"


def test_the_line_of_an_error_in_a_package_is_that_of_the_program() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    line = user_line_of(caught.value)
    assert line is not None
    assert Path(line.file).name == "test_location.py"
