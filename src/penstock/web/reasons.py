"""Explanations of the duration of a step, derived from its figures."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.units import show_bytes, show_count
from penstock.web import formatting
from penstock.web.steps import merged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.web.steps import Interval, Step

SKEWED = 4.0
"""A task or a subpartition larger than this multiple of the median is marked as skewed."""
_MIN_BUSY = 0.5
"""A step whose tasks ran for less than this fraction of its duration waited mostly for the driver."""
_WAITED = (0.3, 0.2)
"""The wait of any other step is reported from this number of seconds and this fraction of its duration."""
_MIN_SECONDS = 0.1
"""The shortest duration to report, in seconds."""
_MIN_DELAY = 0.2
"""A slow task delays its step if it took at least this fraction of the step's duration."""


def reasons_of_time(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    """Explain the duration of a step, the most important reason first."""
    seconds = step.seconds or 0.0
    busy = _clipped(step)
    ran = sum(end - start for start, end in busy)
    least, fraction = _WAITED
    only = "only " if ran < _MIN_BUSY * seconds else ""
    if step.tasks_run and busy and (only or seconds - ran >= max(least, fraction * seconds)):
        yield "; ".join((f"its tasks ran for {only}{formatting.seconds(ran)}", *_waits(step, busy, steps)))
    yield from _skew(step, seconds)
    if step.spilled:
        yield f"{show_bytes(step.spilled)} did not fit into memory and was spilled to disk"
    if step.rows_in:
        others = [other.rows_in or 0 for other in steps if other.id != step.id]
        comparison = " (more than any other step)" if others and step.rows_in > max(others) else ""
        size = "" if step.bytes_in is None else f", {show_bytes(step.bytes_in)}"
        wrote = "" if step.rows_out is None else f" and wrote {formatting.rows(step.rows_out)}, {step.wrote}"
        aggregated = ", partially aggregated" if " partial aggregate" in step.label else ""
        yield f"it read {formatting.rows(step.rows_in)}{size}{comparison}{wrote}{aggregated}"
    if step.tasks_run > 1:
        busy_seconds = sum(end - start for start, end in step.busy)
        concurrency = step.task_seconds / busy_seconds if busy_seconds else 1.0
        tasks, stages = show_count(step.tasks_run, "task"), len(step.stages)
        where = f" of {stages} stages" if stages > 1 else ""
        parallel = f"; {concurrency:.1f} ran in parallel on average" if concurrency > 1 else "; they ran sequentially"
        early = ", some before the step started," if busy_seconds - ran >= _MIN_SECONDS else ""
        yield f"its {tasks}{where}{early} ran for {formatting.seconds(step.task_seconds)} in total{parallel}"


def _clipped(step: Step) -> list[Interval]:
    """Return when tasks of a step ran during the step; tasks that fetch keys for its filters may run before it."""
    began, ended = step.ran or (0.0, 0.0)
    inside = ((max(start, began), min(end, ended)) for start, end in step.busy)
    return [(start, end) for start, end in inside if end > start]


def _waits(step: Step, busy: Sequence[Interval], steps: Sequence[Step]) -> Iterator[str]:
    """Explain the time before, between and after the tasks of a step."""
    began, ended = step.ran or (0.0, 0.0)
    last = busy[-1][1]
    others = merged(times for other in steps if other.id != step.id for times in other.busy)
    between = [(previous[1], following[0]) for previous, following in pairwise(busy)]
    for position, gaps in (("before", [(began, busy[0][0])]), ("between", between)):
        waited = sum(end - start for start, end in gaps)
        overlap = sum(max(min(end, to) - max(start, at), 0.0) for start, end in others for at, to in gaps)
        activity = "tasks of other steps ran" if overlap >= _MIN_BUSY * waited else "Spark planned the step"
        if waited >= _MIN_SECONDS:
            yield f"{formatting.seconds(waited)} passed {position} them, while {activity}"
    if ended - last >= _MIN_SECONDS:
        activity = (
            "its rows were collected and the broadcast table was built"
            if step.is_broadcast
            else "its output was measured"
        )
        yield f"{formatting.seconds(ended - last)} passed after them, while {activity}"


def _skew(step: Step, seconds: float) -> Iterator[str]:
    """Report skew if a task took much longer than the other tasks of its stage."""
    skewed = [
        stage
        for stage in step.stages
        if len(stage.seconds) > 2 and stage.slowest > max(SKEWED * stage.typical, _MIN_DELAY * seconds)
    ]
    if skewed:
        worst = max(skewed, key=lambda stage: stage.slowest)
        which = "its slowest task" if worst.is_complete else f"the slowest of its first {len(worst.seconds):,} tasks"
        slowest, typical = formatting.seconds(worst.slowest), formatting.seconds(worst.typical)
        yield f"rows are skewed: {which} took {slowest}, the median {typical}"
