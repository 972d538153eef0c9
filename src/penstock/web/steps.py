"""The steps of a job for the page: the vertices of its record with their times, rows and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.graph import OperatorKind
from penstock.graph.partitioner import BROADCAST
from penstock.history.record import figure_or_none, run_times
from penstock.web import formatting
from penstock.web.stages import stages_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.history.record import JobRecord
    from penstock.web.stages import Stage

Interval = tuple[float, float]
"""A start and an end, in seconds since the start of the job."""


@dataclass(frozen=True, slots=True)
class Step:
    """A vertex of a job record; None stands for unknown values.

    Parameters
    ----------
    id, number
        The id of the vertex, and the number that the page shows.
    label
        A description with tables and keys.
    state
        The state in lower case.
    reason
        The reason for its number of tasks.
    tasks
        The number of tasks that was decided for it.
    ran
        Its start and end; a running step ends now.
    busy
        When its tasks ran, without overlaps; equals `ran` if some tasks were not recorded.
    stages
        Spark's stages, with their tasks.
    rows_in, rows_out, bytes_in, bytes_out, spilled
        The rows and bytes that it read and wrote, and the bytes that it spilled to disk.
    inputs
        The vertices that it reads, by their ids.
    source
        The table that it reads; empty if it only reads other steps.
    is_broadcast
        Whether its rows are broadcast to every task of its consumer.
    is_delegated
        Whether its last stage is delegated to Spark, which runs it after the job when it fetches the rows.
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


def steps_of(record: JobRecord, now: float) -> list[Step]:
    """Return the steps of a job in the order of their creation."""
    end = record.ended if record.ended is not None else now
    broadcast = {
        edge["vertex"]
        for vertex in record.vertices.values()
        for edge in vertex["inputs"]
        if record.edges[edge["edge"]]["partitioner"] == BROADCAST.name
    }
    return [_step(record, vertex, end, vertex["id"] in broadcast) for vertex in record.vertices.values()]


def _step(record: JobRecord, vertex: dict[str, Any], end: float, is_broadcast: bool) -> Step:  # noqa: FBT001
    started, ended = run_times(vertex)
    ran = None if started is None else (started - record.started, max(ended or end, started) - record.started)
    tasks, figures = record.tasks.get(vertex["id"], []), record.stages.get(vertex["id"], [])
    stages = stages_of(tasks, figures)
    is_delegated = _is_delegated(record, vertex)
    return Step(
        vertex["id"],
        formatting.number_of(vertex["id"]),
        vertex.get("label") or vertex["name"],
        vertex["state"].lower(),
        vertex["reason"],
        figure_or_none(vertex["parallelism"]),
        ran,
        _busy(record, tasks, stages, ran),
        stages,
        None if is_delegated else max((stage["rows_in"] for stage in figures), default=None),
        figure_or_none(vertex["rows_out"]),
        figure_or_none(vertex["bytes_in"]),
        figure_or_none(vertex["bytes_out"]),
        sum(stage["spilled"] for stage in figures) if figures else None,
        tuple(dict.fromkeys(edge["vertex"] for edge in vertex["inputs"])),
        " and ".join(_sources(record, vertex)),
        is_broadcast,
        is_delegated,
    )


def _is_delegated(record: JobRecord, vertex: dict[str, Any]) -> bool:
    """Whether Spark runs the last stage of a vertex: the vertex has no figures, though its job finished."""
    is_spark_query = record.state == "FINISHED" and bool((record.query or {}).get("of_spark"))
    return is_spark_query and vertex["state"] == "FINISHED" and max(vertex["bytes_out"], vertex["rows_out"]) < 0


def _sources(record: JobRecord, vertex: dict[str, Any]) -> list[str]:
    nodes = [record.nodes[node] for node in vertex["nodes"] if node in record.nodes]
    return [node.get("label") or node["name"] for node in nodes if node["kind"] == OperatorKind.SOURCE.value]


def _busy(
    record: JobRecord, tasks: list[dict[str, Any]], stages: Iterable[Stage], ran: Interval | None
) -> tuple[Interval, ...]:
    if ran is None:
        return ()
    if not tasks or not all(stage.is_complete for stage in stages):
        return (ran,)
    times = ((task["started"] - record.started, task["seconds"]) for task in tasks)
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
