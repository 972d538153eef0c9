"""A task that ran much longer than the others of its stage, while cores were idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.units import show_bytes, show_count
from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, SKEWED_FACTOR, SKEWED_THRESHOLD
from penstock.doctor.checks.parallelism import tasks_with_rows
from penstock.doctor.finding import Finding, Kind, run_stages, stage_subject, volume_per_task
from penstock.optimizer.skew import skew_threshold, split_target

if TYPE_CHECKING:
    from penstock.doctor.records import Application, Stage
    from penstock.doctor.timeline import Timeline

_FACTOR = 3.0
"""A task is slow if it ran for more than this many times the median. It only counts while cores are idle."""
_MIN_TASKS = 3
_DATA_FACTOR = 2.0
"""Slow tasks have more data if they read more than this many times the median bytes or rows."""


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage whose slow tasks ran while cores were idle.

    Lost seconds: the integral of the idle fraction of all cores, from the end of the last task that is not slow to the
    end of the stage. If the work of the slow tasks were divided among all cores, the stage would end that much earlier.
    """
    for stage in run_stages(application):
        seconds = stage.tasks.seconds
        if np.count_nonzero(tasks_with_rows(stage)) < _MIN_TASKS:
            continue
        median = float(np.median(seconds))
        slow = seconds > _FACTOR * median
        if not slow.any():
            continue
        finish = stage.tasks.ok("finish")
        lost = timeline.idle_seconds(float(finish[~slow].max()), float(finish.max()))
        figures = {
            "tasks": len(seconds),
            "slow_tasks": int(slow.sum()),
            "longest_task_seconds": float(seconds.max()),
            "median_task_seconds": median,
        }
        yield _finding(application, stage, lost, slow, figures)


def _finding(
    application: Application, stage: Stage, lost: float, slow: np.ndarray, figures: dict[str, float]
) -> Finding:
    sizes, rows = stage.tasks.bytes, stage.tasks.ok("rows")
    slowest = int(np.argmax(stage.tasks.seconds))
    median_bytes, median_rows = float(np.median(sizes)), float(np.median(rows))
    figures |= {"slowest_task_bytes": float(sizes[slowest]), "median_task_bytes": median_bytes}
    which = "Its slowest task" if slow.sum() == 1 else f"The slowest of {show_count(int(slow.sum()), 'slow task')}"
    problem = (
        f"{which} took {figures['longest_task_seconds']:.1f} s, the median of {len(slow):,} tasks is "
        f"{figures['median_task_seconds']:.1f} s, and other cores were idle meanwhile."
    )
    more_bytes = sizes[slowest] > _DATA_FACTOR * max(median_bytes, 1)
    if more_bytes or rows[slowest] > _DATA_FACTOR * max(median_rows, 1):
        amounts = (
            f"{show_bytes(float(sizes[slowest]))} instead of {show_bytes(median_bytes)}"
            if more_bytes
            else f"{int(rows[slowest]):,} rows instead of {int(median_rows):,}"
        )
        problem += f" It read {amounts}: the rows are skewed."
        remedy = "Find the frequent key; handle it separately, aggregate before the join, or add a column to the key."
        decision = _decision(stage, sizes)
    else:
        problem += " It read about as much as the others."
        decision = (
            "Penstock divides by bytes, so it would not have changed this. With "
            f"{ADAPTIVE_PARTITIONER_ENABLED.key}, a repartition before a Python function sends rows to free tasks."
        )
        remedy = (
            "Find out why it is slow: expensive rows, a slow service or host, or a key that is frequent on both sides "
            "of a join. Use more tasks, so that they balance out."
        )
    line = application.where(stage.query, stage.name)
    return Finding(Kind.SKEW, lost, line, stage_subject(stage), problem, decision, remedy, figures)


def _decision(stage: Stage, sizes: np.ndarray) -> str:
    """Return whether Penstock would have split the largest partition, by its thresholds."""
    factor, threshold = SKEWED_FACTOR.default, SKEWED_THRESHOLD.default
    assert isinstance(factor, float)
    assert isinstance(threshold, int)
    size_list = [int(size) for size in sizes]
    limit, largest = skew_threshold(size_list, factor, threshold), max(size_list)
    if stage.is_python:
        return "Penstock does not divide the groups of a Python function either; it decides the number of tasks."
    if largest > limit:
        slices = -(-largest // split_target(size_list, limit, volume_per_task()))
        return f"In a join, Penstock would have split the largest partition into {show_count(slices, 'task')}."
    return (
        f"Penstock splits a partition of a join above {show_bytes(limit)}, and this has {show_bytes(largest)}. A lower "
        f"{SKEWED_THRESHOLD.key} lets it split this partition too."
    )
