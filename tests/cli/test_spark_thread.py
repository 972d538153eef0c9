"""Ctrl-C while Spark is used on its own thread."""

from __future__ import annotations

import signal
import threading

import pytest

from penstock.cli.common import SparkThread
from penstock.extension import interrupts


def test_ctrl_c_just_before_the_wait_cancels_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal is sent to another thread, which is like a signal just before the wait starts."""
    stopped = threading.Event()
    monkeypatch.setattr(interrupts, "cancel_all", stopped.set)

    def work() -> bool:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return stopped.wait(20)

    with pytest.raises(KeyboardInterrupt):
        SparkThread().call(work)
    assert stopped.is_set()


def test_result_and_error_of_a_call() -> None:
    thread = SparkThread()
    assert thread.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)
