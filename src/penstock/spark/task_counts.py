"""How far Spark jobs have come.

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
    """What the stages of a job group have done so far.

    Parameters
    ----------
    done, total
        Tasks that have ended, and all tasks of the stages that have begun.
    bytes_read, rows_read
        What they read from sources and shuffles.
    """

    done: int
    total: int
    bytes_read: int
    rows_read: int


def task_counts(bridge: Bridge, groups: Sequence[str]) -> dict[str, TaskCounts]:
    """Return how far job groups of ours have come; one call. Groups of which nothing has begun are left out."""
    context = bridge.spark.sparkContext._jsc.sc()
    found = answers.facts(bridge.helper("TaskCounts").of(context, list(groups)))
    return {group: TaskCounts(*figures) for group, figures in found.items()}


def stop_sparks_own_bar(bridge: Bridge) -> None:
    """Let Spark draw no bar of stages any more: two programs cannot draw on the same lines of a terminal."""
    bar = option(bridge.spark.sparkContext._jsc.sc().progressBar())
    if bar is not None:
        bar.stop()
