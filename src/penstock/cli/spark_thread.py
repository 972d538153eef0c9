"""The thread on which a command uses Spark, so that Ctrl-C does not interrupt a call to the JVM."""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING, TypeVar

from penstock.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_POLL_INTERVAL = 0.3
"""Seconds between two checks for the result."""
_CANCEL_INTERVAL = 0.3
"""Seconds between two cancellations, as a query that is being planned starts its jobs only later."""


class SparkThread:
    """An executor for calls that use Spark, on a single thread.

    PySpark's handler of Ctrl-C cancels all jobs from within the current call of the main thread. If this call is
    waiting for the JVM, both fail. PySpark sets the handler only if the main thread creates the session.
    """

    def __init__(self) -> None:
        self._pool = DaemonPool(1, "penstock-session")

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of a call. Ctrl-C cancels all jobs and waits for the call; a second Ctrl-C abandons it.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C was pressed.
        """
        future = self._pool.submit(work)
        try:
            while not future.done():  # a wait without timeout may miss a Ctrl-C that came just before it
                wait([future], _POLL_INTERVAL)
            return future.result()
        except KeyboardInterrupt:
            while not future.done():
                _cancel_all()
                wait([future], _CANCEL_INTERVAL)
            raise


def _cancel_all() -> None:
    from penstock.scheduler.job import RECENT
    from penstock.spark.jobs import cancel_all_jobs

    for job in list(RECENT):
        if job.ended is None:
            job.cancel("interrupted from the keyboard")
    cancel_all_jobs()
