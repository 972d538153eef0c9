"""The thread on which a command talks to Spark, so that Ctrl-C never comes into the middle of a call to the JVM."""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING, TypeVar

from penstock.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_WAKES_EVERY = 0.3
"""Seconds between two looks of a wait."""
_STOPS_EVERY = 0.3
"""Seconds between two times at which what runs is stopped: what is planned when Ctrl-C comes starts a job later."""


class SparkThread:
    """Runs what needs Spark on a thread of its own, one call after the other.

    PySpark's own handler of Ctrl-C cancels all jobs from within the call that the main thread is in, and where that
    reads an answer of the JVM, both fail. It is set by the thread that makes the session only if that is the main one.
    """

    def __init__(self) -> None:
        self._pool = DaemonPool(1, "penstock-session")

    def call(self, work: Callable[[], T]) -> T:
        """Return what a call gives; Ctrl-C cancels all jobs until it has ended, and a second one leaves it behind.

        Raises
        ------
        KeyboardInterrupt
            If it was stopped from the keyboard.
        """
        found = self._pool.submit(work)
        try:
            while not found.done():  # a wait without an end may sleep through Ctrl-C that came just before it
                wait([found], _WAKES_EVERY)
            return found.result()
        except KeyboardInterrupt:
            while not found.done():
                _stop_all()
                wait([found], _STOPS_EVERY)
            raise


def _stop_all() -> None:
    from penstock.scheduler.job import RECENT
    from penstock.spark.jobs import cancel_all_jobs

    for job in list(RECENT):
        if job.ended is None:
            job.cancel("interrupted from the keyboard")
    cancel_all_jobs()
