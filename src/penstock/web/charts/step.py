"""The charts on the page of a step: its tasks on timelines, and the sizes of the subpartitions that it wrote."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from penstock.base.units import show_bytes
from penstock.history.lines import subpartitions_per_bar
from penstock.web.charts import bars

if TYPE_CHECKING:
    from penstock.history.record import TaskRecord, VertexRecord
    from penstock.web.steps import Step

SKEW_FACTOR = 4.0
"""A task or a subpartition is marked as skewed if it is more than this many times the median."""
_TIMELINE_HEIGHT = 20  # pixels
_MIN_SKEWED_BYTES = 1 << 20
"""The smallest subpartition, in bytes, that can be marked as skewed: a task combines several smaller subpartitions."""
_MIN_BAR_HEIGHT = 0.5  # percent


@dataclass(frozen=True, slots=True)
class Lane:
    """A recorded task: whether it was much slower than the other tasks of its stage, and its timeline as SVG."""

    task: TaskRecord
    is_slow: bool
    timeline: Markup


@dataclass(frozen=True, slots=True)
class Lanes:
    """The recorded tasks of a step, and the axis of their timelines.

    `note` says how many tasks were recorded; empty if all tasks were recorded.
    """

    tasks: tuple[Lane, ...]
    axis: Markup
    note: str

    @classmethod
    def of(cls, step: Step, tasks: Sequence[TaskRecord]) -> Lanes:
        """Return the recorded tasks of a step."""
        begin = min((task.started for task in tasks), default=0.0)
        span = max((task.started + task.seconds - begin for task in tasks), default=0.0) or 1.0
        slow_seconds = {
            stage.id: SKEW_FACTOR * stage.median_seconds for stage in step.stages if len(stage.task_seconds) > 2
        }
        lanes = []
        for task in tasks:
            is_slow = task.seconds > slow_seconds.get(task.stage, float("inf"))
            times = (task.started - begin, task.started - begin + task.seconds)
            line = bars.time_line(span, [("run skewed" if is_slow else "run finished", times)], _TIMELINE_HEIGHT)
            lanes.append(Lane(task, is_slow, Markup(line)))  # noqa: S704 - numbers only
        is_truncated = step.tasks_run > len(tasks)
        note = f"The first {len(tasks):,} of {step.tasks_run:,} tasks are shown." if is_truncated else ""
        return cls(tuple(lanes), Markup(bars.axis(span)), note)  # noqa: S704 - numbers only


@dataclass(frozen=True, slots=True)
class Bar:
    """A subpartition, or the largest of several neighbours: its label, bytes, and height in percent of the highest."""

    label: str
    size: int
    height: float
    is_skewed: bool


def subpartition_bars(vertex: VertexRecord) -> list[Bar]:
    """Return a bar for each recorded size of a subpartition."""
    sizes, count = vertex.subpartitions, vertex.subpartition_count
    highest = max(sizes, default=0) or 1
    median = statistics.median(sizes) if sizes else 0.0
    group_size = subpartitions_per_bar(count)
    return [
        Bar(
            _label(index * group_size, min((index + 1) * group_size, count) - 1, size),
            size,
            max(100 * size / highest, _MIN_BAR_HEIGHT),
            len(sizes) > 2 and size >= _MIN_SKEWED_BYTES and size > SKEW_FACTOR * median,
        )
        for index, size in enumerate(sizes)
    ]


def _label(first: int, last: int, size: int) -> str:
    if first == last:
        return f"subpartition {first}: {show_bytes(size)}"
    return f"subpartitions {first} to {last}: the largest {show_bytes(size)}"
