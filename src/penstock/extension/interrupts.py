"""Ctrl-C in a program: the jobs are cancelled, and Spark has removed their files before the program is interrupted."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from types import FrameType

from penstock.base.threads import DaemonPool
from penstock.scheduler.job import RECENT
from penstock.spark.bridge.waiting_call import WaitingCall
from penstock.spark.run.jobs import cancel_all_jobs, turn_off_log

_CANCEL_INTERVAL = 0.3
"""Seconds between two cancellations: a query that is being planned may start jobs after the first cancellation."""
_CANCEL_TIMEOUT = 20.0
"""Seconds after which the program is interrupted even if the call of Spark has not ended."""


def cancel_all() -> None:
    """Cancel all jobs of this process and of its Spark application."""
    for job in list(RECENT):  # the latest jobs of this process
        if job.ended is None:
            job.cancel("interrupted from the keyboard")
    cancel_all_jobs()


def _cancel_silently() -> None:
    turn_off_log()  # Spark logs each cancelled job as an error
    cancel_all()


def handle_interrupts() -> None:
    """Replace PySpark's handler of Ctrl-C, which fails while the main thread waits for the JVM; another one stays."""
    handler = signal.getsignal(signal.SIGINT)
    is_pyspark = getattr(handler, "__module__", "").startswith("pyspark.")
    if threading.current_thread() is threading.main_thread() and is_pyspark:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Cancel all jobs, wait for the end of the call in which the main thread waits, and raise `KeyboardInterrupt`.

    Another thread cancels, as the connection of this thread is in use. At a second Ctrl-C, do not wait any longer.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    call = WaitingCall.of(frame)
    pool, deadline = DaemonPool(1, "penstock-interrupt"), time.monotonic() + _CANCEL_TIMEOUT
    try:
        while True:
            cancellation = pool.submit(_cancel_silently)
            if call is None or call.has_ended(_CANCEL_INTERVAL) or time.monotonic() > deadline:
                break
        with suppress(Exception):  # its call must have ended before Python ends the JVM
            cancellation.result(_CANCEL_TIMEOUT)
    finally:
        if call is not None:
            call.abandon()
        signal.signal(signal.SIGINT, _interrupt)
    raise KeyboardInterrupt
