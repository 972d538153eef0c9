"""Detection of sources that do not answer."""

from __future__ import annotations

from penstock.errors import SourceTimeoutError
from penstock.spark.jvm import waits_for_jvm
from penstock.threads import running_work


def check_silence(threads: str, seconds: float) -> None:
    """Raise if a thread waits too long for a source; to be called periodically.

    Threads that compute or wait for Spark are not limited.

    Parameters
    ----------
    threads
        The name prefix of the threads to check.
    seconds
        The longest time to wait.

    Raises
    ------
    SourceTimeoutError
        If a thread has waited for a source that long.
    """
    for work in running_work(threads):
        if work.waits_for and work.idle_seconds(waits_for_jvm) >= seconds:
            raise SourceTimeoutError.of(work.waits_for, work.what, seconds)
