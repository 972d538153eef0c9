"""Monitors a Spark job while a thread waits for it, and cancels it depending on its progress."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.threads import start_thread
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.run.jobs import StageFigures, StageRun

log = logging.getLogger("penstock.spark")

_INTERVAL = 1.0
"""Seconds between two checks; a short job ends before the first."""


class JobWatch:
    """Monitors the Spark jobs with a tag.

    `is_enough` decides whether to cancel the job of a running stage, by the stage and its metrics. `has_stopped` tells
    whether a job was cancelled.
    """

    def __init__(self, bridge: Bridge, is_enough: Callable[[StageRun, StageFigures], bool]) -> None:
        self.has_stopped = False
        self._bridge = bridge
        self._is_enough = is_enough

    @contextmanager
    def over(self, tag: str) -> Iterator[None]:
        """Monitor the jobs with a tag while the block runs."""
        ended = threading.Event()

        def look() -> None:
            try:
                while not self.has_stopped and not ended.wait(_INTERVAL):
                    if any(self._is_enough(*stage) for stage in jobs.running_stages(self._bridge, tag)):
                        jobs.cancel_tag(self._bridge, tag, "it has grown too large")
                        self.has_stopped = True
            except Exception:  # the job continues unmonitored
                log.info("the jobs of %s cannot be monitored", tag, exc_info=True)

        thread = start_thread(f"{threading.current_thread().name}-watch", look)
        try:
            yield
        finally:
            ended.set()
            thread.join()
