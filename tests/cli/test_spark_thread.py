"""Ctrl-C while Spark is used on a thread of its own."""

from __future__ import annotations

import signal
import threading

import pytest

from penstock.cli import spark_thread
from penstock.cli.spark_thread import SparkThread


def test_ctrl_c_that_wakes_no_wait_stops_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal goes to another thread, as it does for one that comes just before the wait begins."""
    stopped = threading.Event()
    monkeypatch.setattr(spark_thread, "_stop_all", stopped.set)

    def work() -> bool:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return stopped.wait(20)

    with pytest.raises(KeyboardInterrupt):
        SparkThread().call(work)
    assert stopped.is_set()


def test_what_a_call_gives_and_raises() -> None:
    thread = SparkThread()
    assert thread.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)
