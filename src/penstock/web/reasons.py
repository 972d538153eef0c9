"""Why a step took its time, as far as its figures tell."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.units import show_bytes, show_count
from penstock.web import words
from penstock.web.steps import merged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.web.steps import Interval, Step

SKEWED = 4.0
"""A task or a piece of the rows is marked where it is so many times the median."""
_MOSTLY_WAITED = 0.5
"""A step whose tasks ran for less than this part of its time has waited for the driver rather than for data."""
_WAITED = (0.3, 0.2)
"""Any other step is told to have waited where none of its tasks ran for so many seconds, and this part of its time."""
_NOTED = 0.1
"""Seconds that are worth a word."""
_MATTERS = 0.2
"""A slow task has held its step up if it took at least this part of its time."""


def reasons_of_time(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    """Return why a step took its time, most telling first."""
    seconds = step.seconds or 0.0
    busy = _clipped(step)
    ran = sum(end - start for start, end in busy)
    least, part = _WAITED
    only = " only" if ran < _MOSTLY_WAITED * seconds else ""
    if step.tasks_run and busy and (only or seconds - ran >= max(least, part * seconds)):
        yield "; ".join((f"its tasks ran for {words.seconds(ran)}{only}", *_waits(step, busy, steps)))
    yield from _skew(step, seconds)
    if step.spilled:
        yield f"{show_bytes(step.spilled)} did not fit into memory and went over the disk"
    if step.rows_in:
        others = [other.rows_in or 0 for other in steps if other.id != step.id]
        much = " (more than any other step)" if others and step.rows_in > max(others) else ""
        size = "" if step.bytes_in is None else f", {show_bytes(step.bytes_in)}"
        wrote = "" if step.rows_out is None else f" and wrote {words.rows(step.rows_out)}, {step.wrote}"
        grouped = ", aggregated on the way" if " partial aggregate" in step.label else ""
        yield f"it read {words.rows(step.rows_in)}{size}{much}{wrote}{grouped}"
    if step.tasks_run > 1:
        all_of_it = sum(end - start for start, end in step.busy)
        at_once = step.task_seconds / all_of_it if all_of_it else 1.0
        tasks, stages = show_count(step.tasks_run, "task"), len(step.stages)
        where = f" of {stages} stages" if stages > 1 else ""
        beside = f"; {at_once:.1f} ran at a time on average" if at_once > 1 else "; they ran one after the other"
        early = ", some before it began," if all_of_it - ran >= _NOTED else ""
        yield f"its {tasks}{where}{early} ran for {words.seconds(step.task_seconds)}, added up{beside}"


def _clipped(step: Step) -> list[Interval]:
    """Return when tasks of a step ran while it did: those that fetch keys for its filters may run before."""
    began, ended = step.ran or (0.0, 0.0)
    inside = ((max(start, began), min(end, ended)) for start, end in step.busy)
    return [(start, end) for start, end in inside if end > start]


def _waits(step: Step, busy: Sequence[Interval], steps: Sequence[Step]) -> Iterator[str]:
    """Return what went on before, between and after the tasks of a step."""
    began, ended = step.ran or (0.0, 0.0)
    last = busy[-1][1]
    others = merged(times for other in steps if other.id != step.id for times in other.busy)
    between = [(one[1], other[0]) for one, other in pairwise(busy)]
    for place, gaps in (("before", [(began, busy[0][0])]), ("between", between)):
        waited = sum(end - start for start, end in gaps)
        taken = sum(max(min(end, to) - max(start, at), 0.0) for start, end in others for at, to in gaps)
        why = "while tasks of other steps ran" if taken >= _MOSTLY_WAITED * waited else "as Spark planned it"
        if waited >= _NOTED:
            yield f"{words.seconds(waited)} passed {place} them, {why}"
    if ended - last >= _NOTED:
        why = (
            "its rows were collected, and the table to broadcast was built" if step.is_broadcast else "it was measured"
        )
        yield f"{words.seconds(ended - last)} passed after them, as {why}"


def _skew(step: Step, seconds: float) -> Iterator[str]:
    """Return that rows are skewed, if a task took much longer than the others of its stage."""
    skewed = [
        stage
        for stage in step.stages
        if len(stage.seconds) > 2 and stage.slowest > max(SKEWED * stage.typical, _MATTERS * seconds)
    ]
    if skewed:
        worst = max(skewed, key=lambda stage: stage.slowest)
        which = "its slowest task" if worst.is_whole else f"the slowest of its first {len(worst.seconds):,} tasks"
        yield f"rows are skewed: {which} took {words.seconds(worst.slowest)}, the median {words.seconds(worst.typical)}"
