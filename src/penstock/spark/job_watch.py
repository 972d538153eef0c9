"""Looks at a Spark job while a thread waits for it, and cancels it if what it has done so far says so."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.spark import jobs
from penstock.threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.jobs import StageFigures, StageRun
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.spark")

_LOOK = 1.0
"""Seconds between two looks: a short job has ended before the first."""


class JobWatch:
    """Looks at Spark jobs with a tag.

    Parameters
    ----------
    bridge
        The session.
    is_enough
        Whether a stage that runs should be stopped, of what it is and has done.

    Attributes
    ----------
    has_stopped
        Whether a job was stopped.
    """

    def __init__(self, bridge: Bridge, is_enough: Callable[[StageRun, StageFigures], bool]) -> None:
        self.has_stopped = False
        self._bridge = bridge
        self._is_enough = is_enough

    @contextmanager
    def over(self, tag: str) -> Iterator[None]:
        """Look at the jobs with a tag as long as the block runs."""
        ended = threading.Event()

        def look() -> None:
            try:
                while not self.has_stopped and not ended.wait(_LOOK):
                    self._look(tag)
            except Exception:  # the job goes on without being looked at
                log.info("the jobs of %s cannot be looked at", tag, exc_info=True)

        thread = start_thread(f"{threading.current_thread().name}-watch", look)
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _look(self, tag: str) -> None:
        if any(self._is_enough(*found) for found in jobs.running_stages(self._bridge, tag)):
            jobs.cancel_tag(self._bridge, tag, "it has grown too large")
            self.has_stopped = True
