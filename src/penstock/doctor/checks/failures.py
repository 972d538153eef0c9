"""Task attempts that failed, and stages that ran again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.doctor.finding import Finding, Kind, stage_subject

if TYPE_CHECKING:
    from penstock.doctor.records import Application
    from penstock.doctor.timeline import Timeline


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage with failed attempts.

    Lost seconds: the seconds of the failed attempts, divided by the number of cores; for a failed attempt of a stage,
    those of all its attempts of tasks.
    """
    for stage in application.stages:
        attempts = stage.tasks.column("finish") - stage.tasks.column("launch")
        failed = ~stage.tasks.succeeded
        wasted = attempts if stage.failure else attempts[failed]
        if not wasted.any() or not (failed.any() or stage.failure):
            continue
        reason = stage.failure or stage.failed_reason
        problem = f"{show_count(int(failed.sum()), 'attempt')} of tasks failed, after {wasted.sum():.1f} s in total"
        yield Finding(
            Kind.FAILURES,
            float(wasted.sum()) / timeline.cores,
            application.where(stage.query, stage.name),
            stage_subject(stage),
            f"{problem}: {reason}." if reason else f"{problem}.",
            "Penstock repeats failed tasks as Spark does, and a lost result only from the step that wrote it.",
            "Find the cause in the log of the executor. Lost executors often lack memory: use more tasks or memory.",
            {"failed_attempts": int(failed.sum()), "failed_seconds": float(wasted.sum())},
        )
