"""A task that ran much longer than the others of its stage, while cores were idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.units import show_bytes, show_count
from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED, SKEWED_FACTOR, SKEWED_THRESHOLD
from penstock.doctor.finding import (
    Finding,
    Kind,
    queries_of,
    run_stages,
    stage_subject,
    tasks_with_rows,
    unfinished_tasks,
    volume_per_task,
)
from penstock.optimizer.skew import skew_threshold, split_target

if TYPE_CHECKING:
    from penstock.doctor.records import Application, Stage
    from penstock.doctor.timeline import Timeline

_FACTOR = 3.0
"""A task is slow if it ran for more than this many times the median. It only counts while cores are idle."""
_EQUAL_FACTOR = 1.5
"""Slow tasks are equal if the longest takes at most this many times their median."""
_MIN_TASKS = 3
_DATA_FACTOR = 2.0
"""Slow tasks have more data if they read more than this many times the median bytes or rows."""
_KEY_REMEDY = "Find the frequent key; handle it separately, aggregate before the join, or add a column to the key."
_FILE_REMEDY = (
    "Spark cannot split some files, such as those of gzip, or a Parquet file with a single row group: write several "
    "files of similar size, or use repartition() after the scan."
)


def check(application: Application, timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding per stage whose slow tasks ran while cores were idle.

    Lost seconds: the integral of the idle fraction of all cores, from the end of the last task that is not slow to the
    end of the stage. If the work of the slow tasks were divided among all cores, the stage would end that much earlier.
    Tasks without an end have run until the last event.
    """
    for stage in run_stages(application):
        slow = slow_tasks(application, stage, timeline)
        if slow is None:
            continue
        finish = _finish(application, stage)
        lost = timeline.idle_seconds(float(finish[~slow].max()), float(finish.max()))
        yield _finding(application, stage, lost, slow)


def slow_tasks(application: Application, stage: Stage, timeline: Timeline) -> np.ndarray | None:
    """Return which tasks of a stage are slow, those without an end last; None if no task is.

    The median is that of the tasks with rows. If those that end last are equal and occupy all cores, it is no skew:
    their number of rows is usual, and that of other tasks is small.
    """
    with_rows = tasks_with_rows(stage)
    if np.count_nonzero(with_rows) + len(stage.running) < _MIN_TASKS:
        return None
    seconds = _seconds(application, stage)
    slow: np.ndarray = seconds > _FACTOR * float(np.median(stage.tasks.seconds[with_rows]))
    if not slow.any() or slow.all():
        return None
    finish = _finish(application, stage)
    last = seconds[slow & (finish > finish[~slow].max())]
    if len(last) >= max(timeline.cores, _MIN_TASKS) and last.max() <= _EQUAL_FACTOR * float(np.median(last)):
        return None
    return slow


def _seconds(application: Application, stage: Stage) -> np.ndarray:
    """Return the durations of the successful tasks, and so far, those of tasks without an end."""
    return np.concatenate([stage.tasks.seconds, application.last_event - np.array(stage.running)])


def _finish(application: Application, stage: Stage) -> np.ndarray:
    """Return the times of the ends of the successful tasks, and the last event for tasks without an end."""
    return np.concatenate([stage.tasks.ok("finish"), np.full(len(stage.running), application.last_event)])


def _finding(application: Application, stage: Stage, lost: float, slow: np.ndarray) -> Finding:
    with_rows, seconds = tasks_with_rows(stage), _seconds(application, stage)
    missing = np.zeros(len(stage.running))  # what tasks without an end read is unknown
    sizes, rows = np.append(stage.tasks.bytes, missing), np.append(stage.tasks.ok("rows"), missing)
    slowest = int(np.argmax(seconds))
    median_seconds = float(np.median(stage.tasks.seconds[with_rows]))
    median_bytes = float(np.median(stage.tasks.bytes[with_rows]))
    median_rows = float(np.median(stage.tasks.ok("rows")[with_rows]))
    count = int(np.count_nonzero(with_rows)) + len(stage.running)
    figures = {
        "tasks": count,
        "slow_tasks": int(slow.sum()),
        "longest_task_seconds": float(seconds[slowest]),
        "median_task_seconds": median_seconds,
        "slowest_task_bytes": float(sizes[slowest]),
        "median_task_bytes": median_bytes,
    }
    which = "Its slowest task" if slow.sum() == 1 else f"The slowest of {show_count(int(slow.sum()), 'slow task')}"
    problem = (
        f"{which} took {figures['longest_task_seconds']:.1f} s, the median of {count:,} tasks is "
        f"{median_seconds:.1f} s, and other cores were idle meanwhile.{unfinished_tasks(application, [stage])}"
    )
    more_bytes = sizes[slowest] > _DATA_FACTOR * max(median_bytes, 1)
    if more_bytes or rows[slowest] > _DATA_FACTOR * max(median_rows, 1):
        amounts = (
            f"{show_bytes(float(sizes[slowest]))} instead of {show_bytes(median_bytes)}"
            if more_bytes
            else f"{int(rows[slowest]):,} rows instead of {int(median_rows):,}"
        )
        is_file = _reads_file(stage, slowest)
        problem += f" It read {amounts}" + (" of files." if is_file else ": the rows are skewed.")
        remedy = _FILE_REMEDY if is_file else _KEY_REMEDY
        decision = (
            "A file that cannot be split is a single task, also with Penstock."
            if is_file
            else _decision(stage, stage.tasks.bytes)
        )
    else:
        is_finished = slowest < len(stage.tasks.seconds)
        problem += " It read about as much as the others." if is_finished else ""
        decision = (
            "Penstock divides by bytes, so it would not have changed this. With "
            f"{ADAPTIVE_PARTITIONER_ENABLED.key}, a repartition before a Python function sends rows to free tasks."
        )
        remedy = (
            "Find out why it is slow: expensive rows, a slow service or host, or a key that is frequent on both sides "
            "of a join. Use more tasks, so that they balance out."
        )
    line = application.where(stage.query, stage.name)
    return Finding(
        Kind.SKEW, lost, line, stage_subject(stage), problem, decision, remedy, figures, queries=queries_of(stage)
    )


def _reads_file(stage: Stage, position: int) -> bool:
    """Return whether a task mostly reads files, and not an exchange or a cached table."""
    names = [node.name for node in stage.nodes]
    is_cached = any("InMemoryTableScan" in name for name in names) and not any("Scan " in name for name in names)
    read, shuffled = stage.tasks.ok("input_bytes"), stage.tasks.ok("shuffle_bytes")
    return not is_cached and position < len(read) and bool(read[position] > shuffled[position])


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
