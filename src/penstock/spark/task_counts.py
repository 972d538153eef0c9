"""The progress of Spark jobs.

Uses (Spark 4.0 to 4.3): ``AppStatusStore.jobsList`` and ``lastStageAttempt``, ``SparkContext.progressBar``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark import answers
from penstock.spark.jvm import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.jvm import Bridge


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The progress of the stages of a job group: ended tasks, and all tasks of the stages that have begun."""

    done: int
    total: int
    bytes_read: int
    rows_read: int


def task_counts(bridge: Bridge, groups: Sequence[str]) -> dict[str, TaskCounts]:
    """Return the progress of job groups in a single call; groups that have not begun are left out."""
    context = bridge.spark.sparkContext._jsc.sc()
    progress = answers.facts(bridge.helper("TaskCounts").of(context, list(groups)))
    return {group: TaskCounts(*figures) for group, figures in progress.items()}


def stop_spark_progress_bar(bridge: Bridge) -> None:
    """Stop Spark's own progress bar, as two programs cannot draw on the same lines of a terminal."""
    bar = option(bridge.spark.sparkContext._jsc.sc().progressBar())
    if bar is not None:
        bar.stop()
