"""Task attempts that failed, and stages that ran again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.units import show_count
from penstock.doctor.finding import Finding, Kind, queries_of, stage_subject

if TYPE_CHECKING:
    from penstock.doctor.records import Application
    from penstock.doctor.timeline import Timeline


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage with failed attempts, or with partitions that ran again as their results were lost.

    Lost seconds: the seconds of these attempts, divided by the number of cores. Killed attempts do not count: another
    attempt was faster, or the stage was cancelled.
    """
    repeated = _repeated(application)
    for stage in application.stages:
        attempts = stage.tasks.column("finish") - stage.tasks.column("launch")
        failed, again = stage.tasks.column("failed") > 0, repeated.get((stage.id, stage.attempt), [])
        wasted = float(attempts[failed].sum() + attempts[again].sum())
        if wasted <= 0:
            continue
        reason = stage.failure or stage.failed_reason
        problem = f"{show_count(int(failed.sum()), 'attempt')} of tasks failed"
        problem += f" and {show_count(len(again), 'partition')} ran again" if again else ""
        problem += f", after {wasted:.1f} s in total"
        yield Finding(
            Kind.FAILURES,
            wasted / timeline.cores,
            application.where(stage.query, stage.name),
            stage_subject(stage),
            f"{problem}: {reason}." if reason else f"{problem}.",
            "Penstock repeats failed tasks as Spark does, and a lost result only from the step that wrote it.",
            "Find the cause in the log of the executor. Lost executors often lack memory: use more tasks or memory.",
            {"failed_attempts": int(failed.sum()), "repeated_partitions": len(again), "failed_seconds": wasted},
            queries=queries_of(stage),
        )


def _repeated(application: Application) -> dict[tuple[int, int], list[int]]:
    """Return the positions of the successful attempts whose partition succeeded again, by stage and its attempt."""
    latest: dict[tuple[int, float], tuple[tuple[int, int], int]] = {}
    repeated: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    again = {stage.id for stage in application.stages if stage.attempt}
    for stage in application.stages:
        if stage.id not in again:
            continue
        for position in np.flatnonzero(stage.tasks.succeeded):
            partition = stage.id, float(stage.tasks.column("partition")[position])
            if partition in latest:
                attempt, earlier = latest[partition]
                repeated[attempt].append(earlier)
            latest[partition] = (stage.id, stage.attempt), int(position)
    return repeated
