"""The steps of a job as the page shows them: a vertex of a record with its times, rows and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.graph import OperatorKind
from penstock.graph.partitioner import BROADCAST
from penstock.history.record import known, run_times
from penstock.web import words
from penstock.web.stages import stages_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.history.record import JobRecord
    from penstock.web.stages import Stage

Interval = tuple[float, float]
"""A start and an end, in seconds since the start of the job."""


@dataclass(frozen=True, slots=True)
class Step:
    """A vertex of a record; what is not known is None.

    Parameters
    ----------
    id, number
        The vertex, and what people call it.
    label
        What it does, with its tables and keys.
    state
        Where it is, in small letters.
    reason
        Why it has as many tasks.
    tasks
        How many tasks it has.
    ran
        When it began and ended; one that runs ends now.
    busy
        When its tasks ran, without overlaps; as `ran` where that is not known of all tasks.
    stages
        Spark's stages, with their tasks.
    rows_in, rows_out, bytes_in, bytes_out, spilled
        What it read, wrote, and had to write to disk for want of memory.
    inputs
        The vertices that it reads, by their ids.
    source
        The table that it reads; empty if it reads other steps only.
    is_broadcast
        Whether its rows go to every task of a step that reads it.
    is_left
        Whether its last stage is not part of the job: Spark runs it when it fetches the rows.
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
    is_left: bool

    @property
    def wrote(self) -> str:
        """What it wrote, in words: compressed bytes, but of what was broadcast from the start those in memory."""
        return "not in the job" if self.is_left else words.size(self.bytes_out)

    @property
    def other_tasks(self) -> int:
        """How many tasks ran beside those that it was decided to have."""
        return 0 if self.is_left or self.tasks is None else max(self.tasks_run - self.tasks, 0)

    @property
    def start(self) -> float | None:
        """When it began to run."""
        return None if self.ran is None else self.ran[0]

    @property
    def seconds(self) -> float | None:
        """How long it has been running, or ran."""
        return None if self.ran is None else self.ran[1] - self.ran[0]

    @property
    def tasks_run(self) -> int:
        """How many tasks ran, in all of its stages."""
        return sum(stage.tasks for stage in self.stages)

    @property
    def task_seconds(self) -> float:
        """How long its tasks ran, added up: as its chart shows them where all were recorded, else as Spark counts."""
        if all(stage.is_whole for stage in self.stages):
            return sum(sum(stage.seconds) for stage in self.stages)
        return sum(stage.total for stage in self.stages)


def steps_of(record: JobRecord, now: float) -> list[Step]:
    """Return the steps of a job, in the order in which they were made."""
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
    is_left = _is_left(record, vertex)
    return Step(
        vertex["id"],
        words.number_of(vertex["id"]),
        vertex.get("label") or vertex["name"],
        vertex["state"].lower(),
        vertex["reason"],
        known(vertex["parallelism"]),
        ran,
        _busy(record, tasks, stages, ran),
        stages,
        None if is_left else max((stage["rows_in"] for stage in figures), default=None),
        known(vertex["rows_out"]),
        known(vertex["bytes_in"]),
        known(vertex["bytes_out"]),
        sum(stage["spilled"] for stage in figures) if figures else None,
        tuple(dict.fromkeys(edge["vertex"] for edge in vertex["inputs"])),
        " and ".join(_sources(record, vertex)),
        is_broadcast,
        is_left,
    )


def _is_left(record: JobRecord, vertex: dict[str, Any]) -> bool:
    """Whether Spark was given what a vertex has not computed: one that nothing has measured, in a job that has."""
    is_of_spark = record.state == "FINISHED" and bool((record.query or {}).get("of_spark"))
    return is_of_spark and vertex["state"] == "FINISHED" and max(vertex["bytes_out"], vertex["rows_out"]) < 0


def _sources(record: JobRecord, vertex: dict[str, Any]) -> list[str]:
    nodes = [record.nodes[node] for node in vertex["nodes"] if node in record.nodes]
    return [node.get("label") or node["name"] for node in nodes if node["kind"] == OperatorKind.SOURCE.value]


def _busy(
    record: JobRecord, tasks: list[dict[str, Any]], stages: Iterable[Stage], ran: Interval | None
) -> tuple[Interval, ...]:
    if ran is None:
        return ()
    if not tasks or not all(stage.is_whole for stage in stages):
        return (ran,)
    times = ((task["started"] - record.started, task["seconds"]) for task in tasks)
    return tuple(merged((start, start + seconds) for start, seconds in times))


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same times without overlaps, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
