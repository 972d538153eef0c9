"""A finding about an application, and what checks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from penstock.base.units import show_count
from penstock.config.options import DATA_VOLUME_PER_TASK
from penstock.doctor.records import Application, Stage
from penstock.doctor.timeline import Timeline
from penstock.sizing.parallelism import (
    Bounds,
    VertexDecision,
    decide_vertex,
    global_maximum,
    subpartition_count,
    tasks_for_python,
)


class Kind(StrEnum):
    """What costs time."""

    SKEW = "skew"
    SPILL = "spill"
    PARALLELISM = "parallelism"
    BROADCAST = "broadcast"
    SMALL_FILES = "small files"
    SINGLE_TASK = "single task"
    PRODUCT = "cartesian product"
    RECOMPUTATION = "recomputation"
    FAILURES = "failures"
    GARBAGE = "garbage collection"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of lost time.

    `seconds` are the lost seconds, estimated low. `line` is where the user's program starts the query, and `subject`
    the stage or the part of the plan. The other texts are sentences: what happened, what Penstock decides in this case,
    and what to do. `figures` has the figures of the sentences. `queries` are the ids of the queries with the problem.
    """

    kind: Kind
    seconds: float
    line: str
    subject: str
    problem: str
    decision: str
    remedy: str
    figures: Mapping[str, float]
    repeats: int = 1
    queries: tuple[int, ...] = ()


Check = Callable[[Application, Timeline], Iterator[Finding]]


def stage_subject(stage: Stage) -> str:
    """Return the name of a stage for users, with its operators."""
    attempt = f", attempt {stage.attempt + 1}" if stage.attempt else ""
    return f"stage {stage.id}{attempt}" + (f" ({stage.operators})" if stage.operators else "")


def queries_of(stage: Stage) -> tuple[int, ...]:
    """Return the query of a stage for a finding."""
    return () if stage.query is None else (stage.query,)


def tasks_with_rows(stage: Stage) -> np.ndarray:
    """Return which tasks read rows; all, if no task reports any."""
    rows = stage.tasks.ok("rows")
    return rows > 0 if rows.any() else np.ones(len(rows), dtype=bool)


def unfinished_tasks(application: Application, stages: Iterable[Stage]) -> str:
    """Return a sentence about the tasks without an end, empty if there are none."""
    launches = [launch for stage in stages for launch in stage.running]
    if not launches:
        return ""
    seconds = application.last_event - min(launches)
    return f" The log has no end of {show_count(len(launches), 'task')}, up to {seconds:.1f} s after the start."


def run_stages(application: Application) -> Iterator[Stage]:
    """Yield the stages in which a task succeeded."""
    return (stage for stage in application.stages if stage.tasks.succeeded.any())


def volume_per_task() -> int:
    """Return the bytes that each task should read, by Penstock's default."""
    volume = DATA_VOLUME_PER_TASK.default
    assert isinstance(volume, int)
    return volume


def decide_tasks(stage: Stage, cores: int) -> VertexDecision | None:
    """Return what Penstock decides for the input of a stage, with default options; None if its bytes are unknown.

    As Penstock writes several subpartitions per expected task, the bytes are taken to be evenly divided among these.
    """
    total = stage.bytes_in
    if total <= 0:
        return None
    volume = volume_per_task()
    bounds = Bounds(1, global_maximum(None, None, cores), volume)
    python = tasks_for_python(total, None, cores) if stage.is_python else None
    count = max(subpartition_count(total, volume, 4 * bounds.maximum), python.tasks if python else 1)
    return decide_vertex([np.full(count, math.ceil(total / count))], bounds, python=python)
