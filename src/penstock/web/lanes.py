"""The tasks of a step, each on a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from penstock.web.charts import bars
from penstock.web.reasons import SKEWED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.web.steps import Step

_HEIGHT = 20
"""The height of a timeline, in pixels."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A recorded task: whether it was much slower than the other tasks of its stage, and its timeline as SVG."""

    task: dict[str, Any]
    is_slow: bool
    line: Markup


@dataclass(frozen=True, slots=True)
class Lanes:
    """The recorded tasks of a step.

    Parameters
    ----------
    tasks
        The tasks, each with its timeline.
    axis
        The axis of the timelines.
    more
        A note about the tasks that were not recorded, empty if all were.
    """

    tasks: tuple[Lane, ...]
    axis: Markup
    more: str

    @classmethod
    def of(cls, step: Step, tasks: Sequence[dict[str, Any]]) -> Lanes:
        """Return the recorded tasks of a step."""
        begin = min((task["started"] for task in tasks), default=0.0)
        span = max((task["started"] + task["seconds"] - begin for task in tasks), default=0.0) or 1.0
        slow = {stage.id: SKEWED * stage.typical for stage in step.stages if len(stage.seconds) > 2}
        lanes = []
        for task in tasks:
            is_slow = task["seconds"] > slow.get(task["stage"], float("inf"))
            times = (task["started"] - begin, task["started"] - begin + task["seconds"])
            line = bars.time_line(span, [("run skewed" if is_slow else "run finished", times)], _HEIGHT)
            lanes.append(Lane(task, is_slow, Markup(line)))  # noqa: S704 - numbers only
        hidden = step.tasks_run > len(tasks)
        more = f"The first {len(tasks):,} of {step.tasks_run:,} tasks are shown." if hidden else ""
        return cls(tuple(lanes), Markup(bars.axis(span)), more)  # noqa: S704 - numbers only
