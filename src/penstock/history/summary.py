"""A summary of what Penstock did for a recorded job, in one line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.history.decisions import recorded_decisions
from penstock.summary import JobSummary

if TYPE_CHECKING:
    from penstock.history.record import JobRecord


def summary_of(record: JobRecord, last_seconds: float | None = None) -> JobSummary:
    """Return the summary of a job.

    Parameters
    ----------
    last_seconds
        The duration of its previous run; None without one.
    """
    tasks = sum(max(vertex["tasks"], 0) for vertex in record.vertices.values())
    return JobSummary.of(recorded_decisions(record), tasks, record.seconds(time.time()), last_seconds)
