"""The stages of a step, with all of their tasks, of which the first are recorded one by one."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Stage:
    """The tasks of one of Spark's stages.

    Parameters
    ----------
    id
        Spark's number of it.
    tasks, total
        How many tasks ran, and their seconds added up: Spark counts none for sending a task or fetching its result.
    seconds
        How long each took from its start to its end, of those that were recorded: of many, the first.
    """

    id: int
    tasks: int
    total: float
    seconds: tuple[float, ...]

    @property
    def is_whole(self) -> bool:
        """Whether each of its tasks was recorded."""
        return len(self.seconds) >= self.tasks

    @property
    def typical(self) -> float:
        """The median of the seconds of its tasks."""
        return statistics.median(self.seconds) if self.seconds else 0.0

    @property
    def slowest(self) -> float:
        """How long the slowest of its tasks took."""
        return max(self.seconds, default=0.0)


def stages_of(tasks: Iterable[dict[str, Any]], figures: Iterable[dict[str, Any]]) -> tuple[Stage, ...]:
    """Return the stages of a step, from the tasks that were recorded and from the figures of all tasks.

    Logs of older releases have no such figures. They are those of the last run of a stage: where tasks of an earlier
    run were recorded as well, the tasks tell more.
    """
    seconds: dict[int, list[float]] = {}
    for task in tasks:
        seconds.setdefault(task["stage"], []).append(task["seconds"])
    of_all = {one["id"]: one for one in figures}
    found = []
    for number in sorted(seconds.keys() | of_all.keys()):
        recorded, one = tuple(seconds.get(number, ())), of_all.get(number)
        if one is None or one["tasks"] < len(recorded):
            found.append(Stage(number, len(recorded), sum(recorded), recorded))
        elif one["tasks"]:
            found.append(Stage(number, one["tasks"], one["seconds"], recorded))
    return tuple(found)
