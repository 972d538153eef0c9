"""Rows that did not fit into memory, so tasks wrote them to disk and read them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.doctor.finding import Finding, Kind, decide_tasks, queries_of, run_stages, stage_subject, volume_per_task

if TYPE_CHECKING:
    from penstock.doctor.records import Application
    from penstock.doctor.timeline import Timeline

_BYTES_PER_SECOND = 100e6
"""Bytes of rows in memory that a core writes or reads again per second: serialized, compressed, on a shared disk."""
_MAX_FRACTION = 0.5
"""The largest fraction of the run time of tasks that is attributed to the spill: they also compute."""


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage that spilled.

    Lost seconds: the spilled bytes (in memory) are written and read at `_BYTES_PER_SECOND` each, at most half of the
    run time of the tasks that spilled, divided by the number of tasks that ran at a time.
    """
    for stage in run_stages(application):
        tasks = stage.tasks
        on_disk, in_memory = float(tasks.ok("spilled").sum()), float(tasks.ok("spilled_memory").sum())
        spilling = tasks.ok("spilled") > 0
        if not spilling.any():
            continue
        cost = min(
            2 * max(in_memory, on_disk) / _BYTES_PER_SECOND, _MAX_FRACTION * float(tasks.seconds[spilling].sum())
        )
        per_task = float(tasks.bytes.max())
        largest = f"; the largest task read {show_bytes(per_task)}" if per_task else ""
        problem = (
            f"{show_count(int(spilling.sum()), 'task')} of {len(tasks.seconds):,} spilled {show_bytes(in_memory)} of "
            f"rows to disk ({show_bytes(on_disk)} compressed){largest}."
        )
        decision = decide_tasks(stage, timeline.cores)
        if decision is None:
            sentence = "Penstock decides tasks from the bytes that they read, and this stage read none from files."
        elif decision.parallelism > len(tasks.seconds):
            sentence = (
                f"Penstock would have used {decision.parallelism:,} tasks instead of {len(tasks.seconds):,} "
                f"({decision.reason})."
            )
        else:
            sentence = (
                f"Penstock would have used {show_count(decision.parallelism, 'task')}, too: on average they read no "
                f"more than {show_bytes(volume_per_task())}."
            )
        yield Finding(
            Kind.SPILL,
            cost / tasks.concurrency,
            application.where(stage.query, stage.name),
            stage_subject(stage),
            problem,
            sentence,
            "Use more tasks, so that each has fewer rows, or give the executors more memory per core.",
            {"spilled_bytes": in_memory, "spilled_disk_bytes": on_disk, "largest_task_bytes": per_task},
            queries=queries_of(stage),
        )
