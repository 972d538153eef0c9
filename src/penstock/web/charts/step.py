"""The charts on the page of a step: its tasks on timelines, and the sizes of the subpartitions that it wrote."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from penstock.base.units import show_bytes
from penstock.history.lines import subpartitions_per_bar
from penstock.web.charts import bars
from penstock.web.findings import SKEWED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.history.record import TaskRecord, VertexRecord
    from penstock.web.steps import Step

_HEIGHT = 20  # pixels, of a timeline
_MIN_MARKED = 1 << 20
"""The least bytes of a subpartition that can delay a task."""
_MIN_HEIGHT = 0.5  # percent, of a bar


@dataclass(frozen=True, slots=True)
class Lane:
    """A recorded task: whether it was much slower than the other tasks of its stage, and its timeline as SVG."""

    task: TaskRecord
    is_slow: bool
    line: Markup


@dataclass(frozen=True, slots=True)
class Lanes:
    """The recorded tasks of a step, and the axis of their timelines.

    `more` is a note about the tasks that were not recorded, empty if all were.
    """

    tasks: tuple[Lane, ...]
    axis: Markup
    more: str

    @classmethod
    def of(cls, step: Step, tasks: Sequence[TaskRecord]) -> Lanes:
        """Return the recorded tasks of a step."""
        begin = min((task.started for task in tasks), default=0.0)
        span = max((task.started + task.seconds - begin for task in tasks), default=0.0) or 1.0
        slow = {stage.id: SKEWED * stage.typical for stage in step.stages if len(stage.seconds) > 2}
        lanes = []
        for task in tasks:
            is_slow = task.seconds > slow.get(task.stage, float("inf"))
            times = (task.started - begin, task.started - begin + task.seconds)
            line = bars.time_line(span, [("run skewed" if is_slow else "run finished", times)], _HEIGHT)
            lanes.append(Lane(task, is_slow, Markup(line)))  # noqa: S704 - numbers only
        hidden = step.tasks_run > len(tasks)
        more = f"The first {len(tasks):,} of {step.tasks_run:,} tasks are shown." if hidden else ""
        return cls(tuple(lanes), Markup(bars.axis(span)), more)  # noqa: S704 - numbers only


@dataclass(frozen=True, slots=True)
class Bar:
    """A subpartition, or the largest of several neighbours: its label, bytes, and height in percent of the highest."""

    label: str
    size: int
    height: float
    is_skewed: bool


def subpartition_bars(vertex: VertexRecord) -> list[Bar]:
    """Return a bar for each recorded size of a subpartition.

    Small subpartitions are never marked as skewed, as a task reads many of them.
    """
    sizes, count = vertex.subpartitions, vertex.subpartition_count
    highest = max(sizes, default=0) or 1
    typical = statistics.median(sizes) if sizes else 0.0
    width = subpartitions_per_bar(count)
    return [
        Bar(
            _label(number * width, min((number + 1) * width, count) - 1, size),
            size,
            max(100 * size / highest, _MIN_HEIGHT),
            len(sizes) > 2 and size >= _MIN_MARKED and size > SKEWED * typical,
        )
        for number, size in enumerate(sizes)
    ]


def _label(first: int, last: int, size: int) -> str:
    if first == last:
        return f"subpartition {first}: {show_bytes(size)}"
    return f"subpartitions {first} to {last}: the largest {show_bytes(size)}"
