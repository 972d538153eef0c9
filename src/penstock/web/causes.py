"""The causes of a step's duration, from the measurements of its tasks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from penstock.base.units import show_bytes, show_count
from penstock.graph.labels import listed
from penstock.web import formatting
from penstock.web.steps import Interval, Stage, Step, merge_intervals

_UNEVEN_FACTOR = 2.0
"""A step waits for its slowest task if this takes more than this many times the median."""
_EVEN_FACTOR = 1.3
"""Work is evenly distributed if no task takes more than this many times the mean."""
_MIN_BUSY_FRACTION = 0.5
"""If the tasks of a step ran for less than this fraction of the step's duration, the step mostly waited."""
_MIN_WAIT = (0.3, 0.2)
"""For steps that mostly ran, a wait is reported if it reaches both limits: seconds, and a fraction of the duration."""
_MIN_SECONDS = 0.1  # the shortest duration to report
_MIN_DELAY_FRACTION = 0.2
"""The smallest fraction of the duration of a step that a slow task must take to delay the step."""
_MIN_COST_FRACTION = 0.1
"""The smallest fraction of its tasks' run time that garbage collection or waits must take to be reported."""
_MIN_OUTSIDE_FRACTION = 0.3
"""As `_MIN_COST_FRACTION`, for the time outside of Spark's own threads."""
_MIN_CORES_FRACTION = 0.8
"""Cores limit a step if its tasks used at least this fraction of them on average."""


def reasons_of_time(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    """Explain the duration of a step, the most important reason first; figures of its rows and tasks follow."""
    seconds, busy = step.seconds or 0.0, _busy_within_span(step)
    run_seconds = sum(end - start for start, end in busy)
    min_seconds, min_fraction = _MIN_WAIT
    only = "only " if run_seconds < _MIN_BUSY_FRACTION * seconds else ""
    causes: list[str] = []
    if step.tasks_run and busy and (only or seconds - run_seconds >= max(min_seconds, min_fraction * seconds)):
        causes.append(
            "; ".join((f"its tasks ran for {only}{formatting.seconds(run_seconds)}", *_waits(step, busy, steps)))
        )
    causes += [*_uneven_tasks(step, seconds), *_spill(step), *_waits_of_tasks(step), *_core_use(step)]
    yield from causes
    if step.tasks_run and not causes:
        yield _work(step)
    yield from _rows(step, steps)
    if step.tasks_run > 1:
        concurrency, stages = _concurrency(step), len(step.stages)
        where = f" of {stages} stages" if stages > 1 else ""
        parallel = f"; {concurrency:.1f} ran in parallel on average" if concurrency > 1 else "; they ran sequentially"
        busy_seconds = sum(end - start for start, end in step.busy)
        early = ", some before the step started," if busy_seconds - run_seconds >= _MIN_SECONDS else ""
        tasks = show_count(step.tasks_run, "task")
        yield f"its {tasks}{where}{early} ran for {formatting.seconds(step.task_seconds)} in total{parallel}"


def _busy_within_span(step: Step) -> list[Interval]:
    """Return the busy intervals within the step's span; tasks that fetch keys for its filters may run earlier."""
    began, ended = step.span or (0.0, 0.0)
    clipped = ((max(start, began), min(end, ended)) for start, end in step.busy)
    return [(start, end) for start, end in clipped if end > start]


def _waits(step: Step, busy: Sequence[Interval], steps: Sequence[Step]) -> Iterator[str]:
    """Explain the time before, between and after the tasks of a step."""
    began, ended = step.span or (0.0, 0.0)
    last_end = busy[-1][1]
    others = merge_intervals(times for other in steps if other.id != step.id for times in other.busy)
    between = [(previous[1], following[0]) for previous, following in pairwise(busy)]
    for position, gaps in (("before", [(began, busy[0][0])]), ("between", between)):
        waited = sum(end - start for start, end in gaps)
        overlap = sum(max(min(end, to) - max(start, at), 0.0) for start, end in others for at, to in gaps)
        activity = "tasks of other steps ran" if overlap >= _MIN_BUSY_FRACTION * waited else "Spark planned the step"
        if waited >= _MIN_SECONDS:
            yield f"{formatting.seconds(waited)} passed {position} them, while {activity}"
    if ended - last_end >= _MIN_SECONDS:
        activity = (
            "its rows were collected and the broadcast table was built"
            if step.is_broadcast
            else "its output was measured"
        )
        yield f"{formatting.seconds(ended - last_end)} passed after them, while {activity}"


def _uneven_tasks(step: Step, seconds: float) -> Iterator[str]:
    """Report a task that took much longer than the median of its stage, and whether it read more rows."""
    uneven = [
        stage
        for stage in step.stages
        if len(stage.task_seconds) > 2
        and stage.max_seconds > max(_UNEVEN_FACTOR * stage.median_seconds, _MIN_DELAY_FRACTION * seconds)
    ]
    if not uneven:
        return
    worst = max(uneven, key=lambda stage: stage.max_seconds)
    first = f"the slowest of its first {len(worst.task_seconds):,} tasks"
    longest, median = formatting.seconds(worst.max_seconds), formatting.seconds(worst.median_seconds)
    yield f"{'its slowest task' if worst.is_complete else first} took {longest}, the median {median}{_rows_of(worst)}"


def _rows_of(stage: Stage) -> str:
    """Compare the rows of the slowest task of a stage with the median; empty if no task reported any."""
    rows = statistics.median(stage.task_rows) if len(stage.task_rows) == len(stage.task_seconds) else 0
    if not rows:
        return ""
    slowest = stage.task_rows[stage.task_seconds.index(stage.max_seconds)]
    counts = f"it read {formatting.rows(slowest)}, the median is {formatting.short_count(rows)}"
    return f"; the rows are skewed: {counts}" if slowest > _UNEVEN_FACTOR * rows else f"; not by its rows: {counts}"


def _spill(step: Step) -> Iterator[str]:
    if step.spilled:
        yield f"{show_bytes(step.spilled)} did not fit into memory and was spilled to disk"


def _waits_of_tasks(step: Step) -> Iterator[str]:
    """Report garbage collection, waits for shuffled data, and time outside of Spark's threads."""
    total = sum(stage.total_seconds for stage in step.stages)
    cpu = _sum_or_none(stage.cpu_seconds for stage in step.stages)
    collection = _sum_or_none(stage.gc_seconds for stage in step.stages)
    fetch = _sum_or_none(stage.fetch_seconds for stage in step.stages)
    if cpu is None or collection is None or fetch is None:  # in logs of older releases
        return
    of_total = f"of the {formatting.seconds(total)} that its tasks ran"
    if collection >= max(_MIN_COST_FRACTION * total, _MIN_SECONDS):
        yield f"garbage collection took {formatting.seconds(collection)} {of_total}"
    if fetch >= max(_MIN_COST_FRACTION * total, _MIN_SECONDS):
        yield f"waits for shuffled data took {formatting.seconds(fetch)} {of_total}"
    outside = total - cpu - collection - fetch
    if outside >= max(_MIN_OUTSIDE_FRACTION * total, _MIN_SECONDS):
        functions = listed(step.python_functions, "functions")
        where = f"while Python ran {functions}" if functions else "in waits for files, or for other processes"
        yield f"{formatting.seconds(outside)} {of_total} passed outside of Spark's threads, {where}"


def _sum_or_none(values: Iterable[float | None]) -> float | None:
    """Return the sum of values, None if any of them is unknown."""
    numbers = list(values)
    return None if None in numbers else sum(filter(None, numbers))


def _core_use(step: Step) -> Iterator[str]:
    """Report a step whose longest stage has fewer tasks than cores, or whose tasks took turns on all cores."""
    if not step.cores or not step.stages:
        return
    stage = max(step.stages, key=lambda stage: stage.total_seconds)
    seconds = formatting.seconds(stage.total_seconds)
    if stage.tasks < step.cores:
        used = f"only {stage.tasks} of {step.cores} cores"
        yield f"{'a single task' if stage.tasks == 1 else f'{stage.tasks} tasks'} ran for {seconds} on {used}"
    elif stage.tasks > step.cores and _concurrency(step) >= _MIN_CORES_FRACTION * step.cores:
        rounds = math.ceil(stage.tasks / step.cores)
        cores = show_count(step.cores, "core")
        yield f"its {stage.tasks:,} tasks took turns on {cores}, about {rounds:,} each: more cores would shorten it"


def _work(step: Step) -> str:
    """Describe a step whose time has no other cause than what its tasks compute."""
    cpu = _sum_or_none(stage.cpu_seconds for stage in step.stages)
    time = (
        f"{formatting.seconds(step.task_seconds)} of run time" if cpu is None else f"{formatting.seconds(cpu)} of CPU"
    )
    stage = max(step.stages, key=lambda stage: stage.total_seconds)
    is_even = len(stage.task_seconds) > 1 and stage.max_seconds <= _EVEN_FACTOR * statistics.mean(stage.task_seconds)
    return f"the work itself: {time} in {show_count(step.tasks_run, 'task')}{', evenly distributed' if is_even else ''}"


def _rows(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    if step.rows_in:
        others = [other.rows_in or 0 for other in steps if other.id != step.id]
        rank = " (more than any other step)" if others and step.rows_in > max(others) else ""
        size = "" if step.bytes_in is None else f", {show_bytes(step.bytes_in)}"
        output = "" if step.rows_out is None else f" and wrote {formatting.rows(step.rows_out)}, {step.output_size}"
        aggregated = ", partially aggregated" if " partial aggregate" in step.label else ""
        yield f"it read {formatting.rows(step.rows_in)}{size}{rank}{output}{aggregated}"


def _concurrency(step: Step) -> float:
    """Return how many tasks of a step ran in parallel on average, while any ran."""
    busy_seconds = sum(end - start for start, end in step.busy)
    return step.task_seconds / busy_seconds if busy_seconds else 1.0
