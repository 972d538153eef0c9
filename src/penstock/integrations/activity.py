"""The queries that ran since a moment: as jobs, and by Spark itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.extension.program import RUN_BY_PENSTOCK
from penstock.scheduler.job import RECENT, Job
from penstock.spark.run.query_hook import query_counts

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge


@dataclass(frozen=True, slots=True)
class Activity:
    """The jobs of this process, oldest first, and the number of queries that Spark ran itself, by reason."""

    jobs: tuple[Job, ...]
    run_by_spark: Mapping[str, int]

    @property
    def note(self) -> str:
        """A sentence about the queries that Spark ran itself; empty if there are only jobs."""
        if self.run_by_spark:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.run_by_spark.items())
            return f"Spark ran queries itself: {reasons}."
        return "" if self.jobs else "No query ran."


class ActivityMonitor:
    """Reports what has run since its creation."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._earlier_jobs = set(RECENT)
        self._earlier_counts = query_counts(bridge)

    def activity(self) -> Activity:
        """Return the queries since the creation of this monitor."""
        jobs = tuple(job for job in list(RECENT) if job not in self._earlier_jobs)
        return Activity(jobs, dict(self._new_counts()))

    def _new_counts(self) -> Iterator[tuple[str, int]]:
        for reason, count in query_counts(self._bridge).items():
            new = count - self._earlier_counts.get(reason, 0)
            if new > 0 and reason != RUN_BY_PENSTOCK:
                yield reason, new
