"""Stages whose tasks spent much time in garbage collection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.doctor.finding import Finding, Kind, decide_tasks, queries_of, run_stages, stage_subject

if TYPE_CHECKING:
    from penstock.doctor.records import Application
    from penstock.doctor.timeline import Timeline

_NORMAL_FRACTION = 0.1
"""The fraction of the run time that Spark's page marks, and that is normal below."""


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage with much garbage collection.

    Lost seconds: the time of collections beyond `_NORMAL_FRACTION` of the run time, divided by the number of tasks that
    ran at a time. A collection stops all tasks of an executor, and each of them reports it, so the time is divided by
    these tasks.
    """
    for stage in run_stages(application):
        run, gc = float(stage.tasks.ok("run").sum()), float(stage.tasks.ok("gc").sum())
        if gc <= _NORMAL_FRACTION * run:
            continue
        decision = decide_tasks(stage, timeline.cores)
        count = len(stage.tasks.seconds)
        sentence = "Penstock decides tasks from the bytes that they read, and this stage reports none."
        if decision is not None:
            sentence = (
                f"Penstock would have used {decision.parallelism:,} tasks instead of {count:,} ({decision.reason})."
            )
        yield Finding(
            Kind.GARBAGE,
            (gc - _NORMAL_FRACTION * run) / stage.tasks.concurrency,
            application.where(stage.query, stage.name),
            stage_subject(stage),
            f"Its tasks spent {gc:.1f} s of {run:.1f} s in garbage collection.",
            sentence,
            "Give the executors more memory per core, use more tasks, or cache less.",
            {"gc_seconds": gc, "run_seconds": run},
            queries=queries_of(stage),
        )
