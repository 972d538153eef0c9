"""The steps of a job on the web page: its vertices with their times, rows and bytes, and how the job spent its time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph import OperatorKind
from penstock.graph.partitioner import BROADCAST
from penstock.web import formatting

if TYPE_CHECKING:
    from penstock.history.record import JobRecord, StageRecord, TaskRecord, VertexRecord

Interval = tuple[float, float]
"""A start and an end, in seconds since the start of the job."""
_MAX_WAIT_GAP = 0.3
"""A step that starts within this number of seconds after its last input ended waited only for this input."""
_MIN_GAP = 0.05
"""The shortest gap to report, in seconds: Spark records the times of tasks only in milliseconds."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A Spark stage of a step: the number of tasks that ran, their total run time, and each recorded task's run time.

    Of many tasks, only the first are recorded. Run times exclude sending a task and fetching its result. `task_rows`
    are the rows that each recorded task read. Of the total, `cpu_seconds` are CPU time, `gc_seconds` garbage
    collection, and `fetch_seconds` waits for shuffled data; None in logs of older releases.
    """

    id: int
    tasks: int
    total_seconds: float
    task_seconds: tuple[float, ...]
    task_rows: tuple[int, ...] = ()
    cpu_seconds: float | None = None
    gc_seconds: float | None = None
    fetch_seconds: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether each of its tasks was recorded."""
        return len(self.task_seconds) >= self.tasks

    @property
    def median_seconds(self) -> float:
        """The median run time of its recorded tasks."""
        return statistics.median(self.task_seconds) if self.task_seconds else 0.0

    @property
    def max_seconds(self) -> float:
        """The longest run time of its recorded tasks."""
        return max(self.task_seconds, default=0.0)


@dataclass(frozen=True, slots=True)
class Step:
    """A vertex of a job record, as the web page shows it; None stands for unknown values.

    `label` is a description with tables and keys. `tasks` is the decided number of tasks, and `reason` the reason for
    this number. `span` is the time from the start to the end of the step; a running step ends now. `busy` are the
    disjoint intervals in which its tasks ran; only `span` if some tasks were not recorded. `rows_in` is the largest
    number of rows that any of its stages read. `inputs` are the ids of the vertices that the step reads; `source` names
    the tables that it reads, empty without a table. If a step `is_broadcast`, every task of its consumer gets all its
    rows. If a step `ends_in_spark`, Spark runs its last stage after the job to fetch the rows. `python_functions` are
    the names of its Python functions, and `cores` the tasks that can run at a time in the application.
    """

    id: str
    number: str
    label: str
    state: str
    reason: str
    tasks: int | None
    span: Interval | None
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
    ends_in_spark: bool
    python_functions: tuple[str, ...] = ()
    cores: int | None = None

    @property
    def output_size(self) -> str:
        """The size of its output: compressed, or in memory if planned as a broadcast; "in Spark" if it ends there."""
        return "in Spark" if self.ends_in_spark else formatting.size(self.bytes_out)

    @property
    def extra_tasks(self) -> int:
        """The number of tasks that ran in addition to the decided number."""
        return 0 if self.ends_in_spark or self.tasks is None else max(self.tasks_run - self.tasks, 0)

    @property
    def start(self) -> float | None:
        """When it started, in seconds since the start of the job; None before that."""
        return None if self.span is None else self.span[0]

    @property
    def seconds(self) -> float | None:
        """Its duration so far, in seconds; None before its start."""
        return None if self.span is None else self.span[1] - self.span[0]

    @property
    def tasks_run(self) -> int:
        """The number of tasks that ran in all of its stages."""
        return sum(stage.tasks for stage in self.stages)

    @property
    def task_seconds(self) -> float:
        """The total run time of its tasks: of the recorded tasks if all were recorded, else Spark's totals."""
        if all(stage.is_complete for stage in self.stages):
            return sum(sum(stage.task_seconds) for stage in self.stages)
        return sum(stage.total_seconds for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Timing:
    """The duration of a job, the ids of the steps on its critical path, and the intervals in which no task ran."""

    total_seconds: float
    critical_path: tuple[str, ...]
    idle_intervals: tuple[Interval, ...]

    @classmethod
    def of(cls, steps: Sequence[Step], total_seconds: float) -> Timing:
        """Compute the timing of a job from its steps."""
        return cls(total_seconds, critical_path(steps), tuple(idle_intervals(steps, total_seconds)))

    @property
    def idle_seconds(self) -> float:
        """The total duration of the idle intervals."""
        return sum(end - start for start, end in self.idle_intervals)


def steps_of(record: JobRecord, now: float) -> list[Step]:
    """Return the steps of a job in the order of their creation."""
    end = record.ended if record.ended is not None else now
    inputs = (edge for vertex in record.vertices.values() for edge in vertex.inputs)
    broadcast = {edge.vertex for edge in inputs if record.edges[edge.edge].partitioner == BROADCAST.name}
    return [_step(record, vertex, end, is_broadcast=vertex.id in broadcast) for vertex in record.vertices.values()]


def _step(record: JobRecord, vertex: VertexRecord, end: float, *, is_broadcast: bool) -> Step:
    started, ended = vertex.started, vertex.ended
    span = None if started is None else (started - record.started, max(ended or end, started) - record.started)
    tasks, stage_totals = record.tasks.get(vertex.id, []), record.stages.get(vertex.id, [])
    stages = stages_of(tasks, stage_totals)
    # If a vertex of a delegated query has finished without figures of its output, Spark ran its last stage.
    is_delegated = record.state == "FINISHED" and bool((record.query or {}).get("of_spark"))
    ends_in_spark = is_delegated and vertex.state == "FINISHED" and vertex.bytes_out is None and vertex.rows_out is None
    sources = [node.display_name for node in record.nodes_of(vertex) if node.kind == OperatorKind.SOURCE.value]
    return Step(
        vertex.id,
        formatting.step_number(vertex.id),
        vertex.display_name,
        vertex.state.lower(),
        vertex.reason,
        vertex.parallelism,
        span,
        _busy_intervals(record, tasks, stages, span),
        stages,
        None if ends_in_spark else max((stage.rows_in for stage in stage_totals), default=None),
        vertex.rows_out,
        vertex.bytes_in,
        vertex.bytes_out,
        sum(stage.spilled for stage in stage_totals) if stage_totals else None,
        tuple(dict.fromkeys(edge.vertex for edge in vertex.inputs)),
        " and ".join(sources),
        is_broadcast,
        ends_in_spark,
        vertex.python_functions,
        None if record.spark_settings is None else record.spark_settings.cores,
    )


def stages_of(tasks: Iterable[TaskRecord], stage_totals: Iterable[StageRecord]) -> tuple[Stage, ...]:
    """Return the stages of a step from its recorded tasks and Spark's totals of each stage.

    Logs of older releases have no totals. Totals cover only the last attempt of a stage, so the recorded tasks are used
    instead if they include tasks of an earlier attempt.
    """
    tasks_by_stage: dict[int, list[TaskRecord]] = {}
    for task in tasks:
        tasks_by_stage.setdefault(task.stage, []).append(task)
    totals = {stage.id: stage for stage in stage_totals}
    stages = []
    for stage_id in sorted(tasks_by_stage.keys() | totals.keys()):
        recorded, total = tasks_by_stage.get(stage_id, []), totals.get(stage_id)
        seconds, rows = tuple(task.seconds for task in recorded), tuple(task.rows_in for task in recorded)
        if total is None or total.tasks < len(recorded):
            stages.append(Stage(stage_id, len(recorded), sum(seconds), seconds, rows))
        elif total.tasks:
            times = total.cpu_seconds, total.gc_seconds, total.fetch_seconds
            stages.append(Stage(stage_id, total.tasks, total.seconds, seconds, rows, *times))
    return tuple(stages)


def _busy_intervals(
    record: JobRecord, tasks: list[TaskRecord], stages: Iterable[Stage], span: Interval | None
) -> tuple[Interval, ...]:
    if span is None:
        return ()
    if not tasks or not all(stage.is_complete for stage in stages):
        return (span,)
    times = ((task.started - record.started, task.seconds) for task in tasks)
    return tuple(merge_intervals((start, start + seconds) for start, seconds in times))


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping and adjacent intervals; return the results in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def longest_step(steps: Iterable[Step]) -> Step | None:
    """Return the step that took longest so far; None if none has started."""
    return max((step for step in steps if step.seconds is not None), key=lambda step: step.seconds or 0.0, default=None)


def critical_path(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the ids of the steps on the critical path, first to last.

    A step waits for its input that ended last. A step without inputs, or a step that started long after all its inputs
    had ended, waits for the step that ended last before it started.
    """
    spans = {step.id: step.span for step in steps if step.span is not None}
    inputs = {step.id: step.inputs for step in steps}
    path = [max(spans, key=lambda step_id: spans[step_id][1])] if spans else []
    while path and (awaited := _awaited_step(path[-1], inputs[path[-1]], spans)) is not None:
        path.append(awaited)
    return tuple(reversed(path))


def _awaited_step(step_id: str, inputs: Sequence[str], spans: Mapping[str, Interval]) -> str | None:
    began = spans[step_id][0]
    ends = {other: end for other, (start, end) in spans.items() if other != step_id and end <= began and start < began}
    last_input = max((other for other in ends if other in inputs), key=ends.__getitem__, default=None)
    if last_input is not None and began - ends[last_input] <= _MAX_WAIT_GAP:
        return last_input
    return max(ends, key=ends.__getitem__, default=None)


def idle_intervals(steps: Sequence[Step], total_seconds: float) -> list[Interval]:
    """Return the intervals of at least `_MIN_GAP` seconds in which no task of any step ran."""
    gaps, idle_since = [], 0.0
    for start, end in merge_intervals(interval for step in steps for interval in step.busy):
        if start - idle_since >= _MIN_GAP:
            gaps.append((idle_since, min(start, total_seconds)))
        idle_since = max(idle_since, end)
    if total_seconds - idle_since >= _MIN_GAP:
        gaps.append((idle_since, total_seconds))
    return gaps
