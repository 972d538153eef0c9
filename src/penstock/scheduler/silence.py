"""Sources that do not answer: found by their threads, which only wait."""

from __future__ import annotations

from penstock.errors import SourceTimeoutError
from penstock.spark.jvm import waits_for_jvm
from penstock.threads import works


def check_silence(threads: str, seconds: float) -> None:
    """Look at all questions to sources that threads with a name wait for an answer to; to be called now and then.

    A thread that works gets the time it needs, and so does one that waits for Spark.

    Raises
    ------
    SourceTimeoutError
        If one of them has only waited for so long.
    """
    for work in works(threads):
        if work.asks and work.silent_for(waits_for_jvm) >= seconds:
            raise SourceTimeoutError.of(work.asks, work.what, seconds)
