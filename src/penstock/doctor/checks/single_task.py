"""Stages whose rows are all in a single task, although they could be divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.doctor.checks.parallelism import too_few_tasks
from penstock.doctor.finding import Finding, Kind, run_stages, tasks_with_rows

if TYPE_CHECKING:
    from penstock.doctor.records import Application
    from penstock.doctor.timeline import Timeline


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage with a single task that reads rows; `too_few_tasks` says how much time is lost."""
    for stage in run_stages(application):
        if timeline.cores > 1 and np.count_nonzero(tasks_with_rows(stage)) == 1:
            finding = too_few_tasks(application, stage, timeline, Kind.SINGLE_TASK)
            if finding:
                yield finding
