"""What Penstock did for the job of a record, in one line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.history.told import told
from penstock.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.history.record import JobRecord

__all__ = ["JobSummary", "seconds_of_last", "summary_of"]


def summary_of(record: JobRecord, last_seconds: float | None = None) -> JobSummary:
    """Return the summary of a job.

    Parameters
    ----------
    last_seconds
        How long its last run took, see `seconds_of_last`.
    """
    tasks = sum(max(vertex["tasks"], 0) for vertex in record.vertices.values())
    return JobSummary.of(told(record), tasks, record.seconds(time.time()), last_seconds)


def seconds_of_last(records: Iterable[JobRecord], job: JobRecord) -> float | None:
    """Return how long the last finished run took that has the name of a job and started before it."""
    before = [
        one
        for one in records
        if one.name == job.name and one.id != job.id and one.state == "FINISHED" and one.started < job.started
    ]
    last = max(before, key=lambda one: one.started, default=None)
    return None if last is None or last.ended is None else last.ended - last.started
