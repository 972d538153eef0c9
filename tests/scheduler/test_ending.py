from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.errors import JobCancelledError
from penstock.scheduler.ending import EndArbiter


def test_a_cancelled_job_does_not_commit() -> None:
    ending = EndArbiter("nightly")
    assert ending.cancel("enough")
    with pytest.raises(JobCancelledError, match=r"'nightly' was cancelled\n  cause: enough"):
        ending.begin_commit()
    with pytest.raises(JobCancelledError):
        ending.raise_if_cancelled()
    assert not ending.commit_has_begun


def test_a_commit_that_has_begun_is_not_cancelled() -> None:
    ending = EndArbiter("nightly")
    ending.begin_commit()
    assert ending.cancel("enough")
    assert (ending.cancel_request_reason, ending.effective_cancel_reason) == ("enough", "")
    assert "had already begun to commit" in str(ending.cancel_error())


def test_a_thread_that_wakes_up_after_the_end_does_not_commit() -> None:
    ending = EndArbiter("nightly")
    assert ending.claim_end()
    assert not ending.claim_end()
    assert not ending.cancel("too late")
    with pytest.raises(JobCancelledError):
        ending.begin_commit()


def test_only_the_first_cancellation_counts() -> None:
    ending = EndArbiter("nightly")
    assert [ending.cancel(reason) for reason in ("first", "second")] == [True, False]
    assert ending.cancel_request_reason == "first"


def test_either_the_commit_or_the_cancellation() -> None:
    for _ in range(300):
        ending, together = EndArbiter("nightly"), threading.Barrier(2)
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
        assert committed == [not ending.effective_cancel_reason]


def test_the_error_names_threads_that_hang() -> None:
    ending = EndArbiter("nightly")
    ending.cancel("enough")
    error = ending.cancel_error(["asking orders (thread x)", "running v3 Join (thread y)"])
    assert "threads were left running: asking orders (thread x); running v3 Join (thread y)" in error.message
    assert "cannot make anything visible" in error.hint
