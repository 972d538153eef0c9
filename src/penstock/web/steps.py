"""The steps of a job for the page: its vertices with their times, rows and bytes, and how the job spent its time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph import OperatorKind
from penstock.graph.partitioner import BROADCAST
from penstock.web import formatting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.history.record import JobRecord, StageRecord, TaskRecord, VertexRecord

Interval = tuple[float, float]
"""A start and an end, in seconds since the start of the job."""
_SOON = 0.3
"""A step that starts within this number of seconds after its last input waited only for this input."""
_SHORT = 0.05
"""Shorter gaps, in seconds, are not shown, as Spark records the times of tasks in milliseconds."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A Spark stage of a step: the number of tasks that ran, their total seconds, and those of each recorded task.

    If there are many tasks, only the first are recorded. No duration includes sending the task or fetching its result.
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


@dataclass(frozen=True, slots=True)
class Step:
    """A vertex of a job record; None stands for unknown values.

    `label` is a description with tables and keys. `tasks` is the decided number of tasks, and `reason` the reason for
    it. It `ran` from its start to its end; a running step ends now. Its tasks were `busy` without overlaps; equals
    `ran` if some tasks were not recorded. `inputs` are the ids of the vertices that it reads, and `source` is the table
    that it reads, empty if it only reads other steps. If it `is_broadcast`, every task of its consumer gets its rows.
    If it `is_delegated`, Spark runs its last stage after the job when it fetches the rows.
    """

    id: str
    number: str
    label: str
    state: str
    reason: str
    tasks: int | None
    ran: Interval | None
    busy: tuple[Interval, ...]
    stages: tuple[Stage, ...]
    rows_in: int | None
    rows_out: int | None
    bytes_in: int | None
    bytes_out: int | None
    spilled: int | None
    inputs: tuple[str, ...]
    source: str
    is_broadcast: bool
    is_delegated: bool

    @property
    def wrote(self) -> str:
        """The size of its output: compressed bytes, or bytes in memory if it was planned as a broadcast."""
        return "in Spark" if self.is_delegated else formatting.size(self.bytes_out)

    @property
    def other_tasks(self) -> int:
        """The number of tasks that ran in addition to the decided number."""
        return 0 if self.is_delegated or self.tasks is None else max(self.tasks_run - self.tasks, 0)

    @property
    def start(self) -> float | None:
        """When it started, in seconds since the start of the job."""
        return None if self.ran is None else self.ran[0]

    @property
    def seconds(self) -> float | None:
        """Its duration so far."""
        return None if self.ran is None else self.ran[1] - self.ran[0]

    @property
    def tasks_run(self) -> int:
        """The number of tasks that ran in all of its stages."""
        return sum(stage.tasks for stage in self.stages)

    @property
    def task_seconds(self) -> float:
        """The total duration of its tasks in seconds: of the recorded tasks if complete, else Spark's own total."""
        if all(stage.is_complete for stage in self.stages):
            return sum(sum(stage.seconds) for stage in self.stages)
        return sum(stage.total for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Timing:
    """How a job spent its time: its seconds, the ids of the steps on its critical path, and when no task ran."""

    total: float
    critical: tuple[str, ...]
    idle: tuple[Interval, ...]

    @classmethod
    def of(cls, steps: Sequence[Step], total: float) -> Timing:
        """Compute the timing of a job with these steps."""
        return cls(total, critical_path(steps), tuple(idle(steps, total)))

    @property
    def idle_seconds(self) -> float:
        """The total duration of the idle intervals."""
        return sum(end - start for start, end in self.idle)


def steps_of(record: JobRecord, now: float) -> list[Step]:
    """Return the steps of a job in the order of their creation."""
    end = record.ended if record.ended is not None else now
    inputs = (edge for vertex in record.vertices.values() for edge in vertex.inputs)
    broadcast = {edge.vertex for edge in inputs if record.edges[edge.edge].partitioner == BROADCAST.name}
    return [_step(record, vertex, end, is_broadcast=vertex.id in broadcast) for vertex in record.vertices.values()]


def _step(record: JobRecord, vertex: VertexRecord, end: float, *, is_broadcast: bool) -> Step:
    started, ended = vertex.started, vertex.ended
    ran = None if started is None else (started - record.started, max(ended or end, started) - record.started)
    tasks, figures = record.tasks.get(vertex.id, []), record.stages.get(vertex.id, [])
    stages = stages_of(tasks, figures)
    # Spark runs the last stage of a vertex that has no figures, though the job finished.
    is_spark_query = record.state == "FINISHED" and bool((record.query or {}).get("of_spark"))
    is_delegated = (
        is_spark_query and vertex.state == "FINISHED" and vertex.bytes_out is None and vertex.rows_out is None
    )
    sources = [node.display_name for node in record.nodes_of(vertex) if node.kind == OperatorKind.SOURCE.value]
    return Step(
        vertex.id,
        formatting.number_of(vertex.id),
        vertex.display_name,
        vertex.state.lower(),
        vertex.reason,
        vertex.parallelism,
        ran,
        _busy(record, tasks, stages, ran),
        stages,
        None if is_delegated else max((stage.rows_in for stage in figures), default=None),
        vertex.rows_out,
        vertex.bytes_in,
        vertex.bytes_out,
        sum(stage.spilled for stage in figures) if figures else None,
        tuple(dict.fromkeys(edge.vertex for edge in vertex.inputs)),
        " and ".join(sources),
        is_broadcast,
        is_delegated,
    )


def stages_of(tasks: Iterable[TaskRecord], figures: Iterable[StageRecord]) -> tuple[Stage, ...]:
    """Return the stages of a step from its recorded tasks and from the totals over all tasks.

    Logs of older releases have no totals. Totals cover the last attempt of a stage only, so if tasks of an earlier
    attempt were recorded as well, the tasks are used instead.
    """
    seconds: dict[int, list[float]] = {}
    for task in tasks:
        seconds.setdefault(task.stage, []).append(task.seconds)
    totals = {stage.id: stage for stage in figures}
    stages = []
    for stage_id in sorted(seconds.keys() | totals.keys()):
        recorded, total = tuple(seconds.get(stage_id, ())), totals.get(stage_id)
        if total is None or total.tasks < len(recorded):
            stages.append(Stage(stage_id, len(recorded), sum(recorded), recorded))
        elif total.tasks:
            stages.append(Stage(stage_id, total.tasks, total.seconds, recorded))
    return tuple(stages)


def _busy(
    record: JobRecord, tasks: list[TaskRecord], stages: Iterable[Stage], ran: Interval | None
) -> tuple[Interval, ...]:
    if ran is None:
        return ()
    if not tasks or not all(stage.is_complete for stage in stages):
        return (ran,)
    times = ((task.started - record.started, task.seconds) for task in tasks)
    return tuple(merged((start, start + seconds) for start, seconds in times))


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping intervals; return them in order."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def critical_path(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the ids of the steps on the critical path, first to last.

    A step waits for the last of its inputs. A step without inputs, or that starts long after them, was held back: it
    waited for the step that ended last before it started.
    """
    ran = {step.id: step.ran for step in steps if step.ran is not None}
    inputs = {step.id: step.inputs for step in steps}
    chain = [max(ran, key=lambda step_id: ran[step_id][1])] if ran else []
    while chain and (before := _waited_for(chain[-1], inputs[chain[-1]], ran)) is not None:
        chain.append(before)
    return tuple(reversed(chain))


def _waited_for(step_id: str, inputs: Sequence[str], ran: Mapping[str, Interval]) -> str | None:
    began = ran[step_id][0]
    ends = {other: end for other, (start, end) in ran.items() if other != step_id and end <= began and start < began}
    last = max((other for other in ends if other in inputs), key=ends.__getitem__, default=None)
    if last is not None and began - ends[last] <= _SOON:
        return last
    return max(ends, key=ends.__getitem__, default=None)


def idle(steps: Sequence[Step], total: float) -> list[Interval]:
    """Return the intervals in which no task of any step ran."""
    gaps, at = [], 0.0
    for start, end in merged(span for step in steps for span in step.busy):
        if start - at >= _SHORT:
            gaps.append((at, min(start, total)))
        at = max(at, end)
    if total - at >= _SHORT:
        gaps.append((at, total))
    return gaps
