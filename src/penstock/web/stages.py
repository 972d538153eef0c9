"""The stages of a step: totals over all tasks, and the durations of the tasks that were recorded individually."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Stage:
    """A Spark stage of a step.

    Parameters
    ----------
    id
        Spark's id of the stage.
    tasks, total
        The number of tasks that ran and their total seconds, without the time to send a task or fetch its result.
    seconds
        The duration of each recorded task; if there are many tasks, only the first are recorded.
    """

    id: int
    tasks: int
    total: float
    seconds: tuple[float, ...]

    @property
    def is_complete(self) -> bool:
        """Whether each of its tasks was recorded."""
        return len(self.seconds) >= self.tasks

    @property
    def typical(self) -> float:
        """The median duration of its recorded tasks, in seconds."""
        return statistics.median(self.seconds) if self.seconds else 0.0

    @property
    def slowest(self) -> float:
        """The longest duration of its recorded tasks, in seconds."""
        return max(self.seconds, default=0.0)


def stages_of(tasks: Iterable[dict[str, Any]], figures: Iterable[dict[str, Any]]) -> tuple[Stage, ...]:
    """Return the stages of a step from its recorded tasks and from the totals over all tasks.

    Logs of older releases have no totals. Totals cover the last attempt of a stage only, so if tasks of an earlier
    attempt were recorded as well, the tasks are used instead.
    """
    seconds: dict[int, list[float]] = {}
    for task in tasks:
        seconds.setdefault(task["stage"], []).append(task["seconds"])
    totals = {stage["id"]: stage for stage in figures}
    stages = []
    for stage_id in sorted(seconds.keys() | totals.keys()):
        recorded, total = tuple(seconds.get(stage_id, ())), totals.get(stage_id)
        if total is None or total["tasks"] < len(recorded):
            stages.append(Stage(stage_id, len(recorded), sum(recorded), recorded))
        elif total["tasks"]:
            stages.append(Stage(stage_id, total["tasks"], total["seconds"], recorded))
    return tuple(stages)
