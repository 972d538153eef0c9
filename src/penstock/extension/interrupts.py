"""Ctrl-C in a program: the jobs are cancelled, and Spark has removed their files before the program is interrupted."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from types import FrameType

from penstock.base.threads import DaemonPool
from penstock.scheduler.job import RECENT
from penstock.spark.bridge.waiting_call import WaitingCall
from penstock.spark.run.jobs import cancel_all_jobs, set_log_level

log = logging.getLogger("penstock.extension")

_CANCEL_INTERVAL = 0.3
"""Seconds between two cancellations: a query that is being planned may start jobs after the first cancellation."""
_CANCEL_TIMEOUT = 20.0
"""Seconds after which the program is interrupted even if the call of Spark has not ended."""
_NOTICE_SECONDS = 1.0
"""Seconds after which a line on standard error says that the jobs are being cancelled."""
_LAST_CANCEL_TIMEOUT = 3.0
"""Seconds to wait for the last cancellation, which would otherwise cancel the next query of the program."""


def cancel_all() -> None:
    """Cancel all jobs of this process and of its Spark application."""
    for job in list(RECENT):  # the latest jobs of this process
        if job.ended is None:
            try:
                job.cancel("interrupted from the keyboard")
            except Exception:  # the other jobs are cancelled nevertheless
                log.warning("job %s cannot be cancelled", job.id, exc_info=True)
    cancel_all_jobs()


def handle_interrupts() -> None:
    """Replace PySpark's handler of Ctrl-C, which fails while the main thread waits for the JVM; another one stays."""
    handler = signal.getsignal(signal.SIGINT)
    is_pyspark = (getattr(handler, "__module__", None) or "").startswith("pyspark.")
    if threading.current_thread() is threading.main_thread() and is_pyspark:
        signal.signal(signal.SIGINT, _interrupt)
        logging.root.addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Whether a record is not the traceback of an interrupted call, which the client of the JVM logs as an error."""
    return record.msg != "KeyboardInterrupt while sending command."


@contextmanager
def interrupts_restored() -> Iterator[None]:
    """After the block, restore the handler of Ctrl-C from before it if `handle_interrupts` has replaced PySpark's."""
    previous = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_main_thread = threading.current_thread() is threading.main_thread()
        if is_main_thread and previous is not None and signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, previous)
            logging.root.removeFilter(_is_no_interrupt)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Cancel all jobs, wait for the end of the call in which the main thread waits, and raise `KeyboardInterrupt`.

    At a second Ctrl-C, do not wait any longer.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    call = WaitingCall.of(frame)
    try:
        _cancel_and_wait(call)
    except Exception:  # the program must be interrupted after any error
        log.warning("the jobs could not be cancelled", exc_info=True)
    finally:
        if call is not None:
            call.abandon()
        signal.signal(signal.SIGINT, _interrupt)
    raise KeyboardInterrupt


def _cancel_and_wait(call: WaitingCall | None) -> None:
    """Cancel all jobs until `call` ends, or once without a call; another thread cancels, as `call` uses this one's."""
    pool, started, has_notified = DaemonPool(1, "penstock-interrupt"), time.monotonic(), False
    level_before = pool.submit(set_log_level, "OFF")  # Spark logs each cancelled job as an error
    cancellation = pool.submit(cancel_all)
    try:
        while time.monotonic() < started + _CANCEL_TIMEOUT:
            if call is None:
                has_ended = bool(wait([cancellation], _CANCEL_INTERVAL).done)
            else:
                has_ended = call.has_ended(_CANCEL_INTERVAL)
            if has_ended:
                break
            if not has_notified and time.monotonic() > started + _NOTICE_SECONDS:
                has_notified = True
                _notify()
            if cancellation.done():
                cancellation = pool.submit(cancel_all)
        wait([cancellation], _LAST_CANCEL_TIMEOUT)
        if level_before.done() and (level := level_before.result()) is not None:
            wait([pool.submit(set_log_level, level)], _LAST_CANCEL_TIMEOUT)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _notify() -> None:
    with suppress(RuntimeError, OSError, ValueError, AttributeError):  # the stream may be in use, closed or absent
        sys.stderr.write("\ncancelling; press Ctrl-C again to stop at once\n")
        sys.stderr.flush()
