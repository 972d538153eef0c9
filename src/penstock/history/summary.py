"""What Penstock did for the job of a record, in one line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.history.told import told
from penstock.summary import JobSummary

if TYPE_CHECKING:
    from penstock.history.record import JobRecord


def summary_of(record: JobRecord, last_seconds: float | None = None) -> JobSummary:
    """Return the summary of a job.

    Parameters
    ----------
    last_seconds
        How long its last run took, None if there was none.
    """
    tasks = sum(max(vertex["tasks"], 0) for vertex in record.vertices.values())
    return JobSummary.of(told(record), tasks, record.seconds(time.time()), last_seconds)
