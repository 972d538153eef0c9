from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.errors import JobCancelledError
from penstock.scheduler.ending import Ending


def test_a_cancelled_job_does_not_commit() -> None:
    ending = Ending("nightly")
    assert ending.cancel("enough")
    with pytest.raises(JobCancelledError, match=r"'nightly' was cancelled\n  cause: enough"):
        ending.begin_commit()
    with pytest.raises(JobCancelledError):
        ending.check()
    assert not ending.has_committed


def test_a_commit_that_has_begun_is_not_cancelled() -> None:
    ending = Ending("nightly")
    ending.begin_commit()
    assert ending.cancel("enough")
    assert (ending.requested_reason, ending.cancelled) == ("enough", "")
    assert "had already begun to commit" in str(ending.error())


def test_a_thread_that_wakes_up_after_the_end_does_not_commit() -> None:
    ending = Ending("nightly")
    assert ending.settle()
    assert not ending.settle()
    assert not ending.cancel("too late")
    with pytest.raises(JobCancelledError):
        ending.begin_commit()


def test_only_the_first_cancellation_counts() -> None:
    ending = Ending("nightly")
    assert [ending.cancel(reason) for reason in ("first", "second")] == [True, False]
    assert ending.requested_reason == "first"


def test_either_the_commit_or_the_cancellation() -> None:
    for _ in range(300):
        ending, together = Ending("nightly"), threading.Barrier(2)
        committed: list[bool] = []

        def commit(ending: Any = ending, together: Any = together, committed: Any = committed) -> None:
            together.wait()
            try:
                ending.begin_commit()
                committed.append(True)
            except JobCancelledError:
                committed.append(False)

        thread = threading.Thread(target=commit)
        thread.start()
        together.wait()
        ending.cancel("enough")
        thread.join()
        assert committed == [not ending.cancelled]


def test_the_error_names_threads_that_hang() -> None:
    ending = Ending("nightly")
    ending.cancel("enough")
    error = ending.error(["asking orders (thread x)", "running v3 Join (thread y)"])
    assert "threads were left running: asking orders (thread x); running v3 Join (thread y)" in error.message
    assert "cannot make anything visible" in error.hint
