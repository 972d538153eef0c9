"""The events of a job, and snapshots of its vertices.

The first event is `GraphPlanned`, unless Spark runs the query unchanged or the job ends while it is planned; the last
is a `JobStateChanged` to a terminal state. Snapshots are for the terminal, the REST API, the web page and reports.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.decisions.log import Decision
    from penstock.graph import GraphChange, JobVertex, JobVertexID, RefusedChange, StreamGraph


class ExecutionState(StrEnum):
    """The states of a vertex and of a job."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_terminal(self) -> bool:
        """Whether a job or vertex never leaves the state.

        >>> ExecutionState.RUNNING.is_terminal, ExecutionState.CANCELED.is_terminal
        (False, True)
        """
        return self in {ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED}


@dataclass(frozen=True, slots=True)
class VertexSnapshot:
    """The state of a vertex at a point in time.

    `parallelism` is the decided number of tasks, or `tasks` if none was decided; None until then. `reason` explains it.
    `tasks` is the number of tasks that ran, None if unknown or if nothing had to run. Bytes and rows are None if
    unknown; bytes of sources and of broadcasts are estimates. `subpartitions` are the bytes of each subpartition, or of
    a broadcast; empty if unknown, and for sinks. `timestamps` has the start of each state, in seconds since the epoch.
    `python_functions` are the names of its Python functions.
    """

    vertex: JobVertex
    state: ExecutionState = ExecutionState.CREATED
    parallelism: int | None = None
    reason: str = ""
    tasks: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    rows_out: int | None = None
    subpartitions: Sequence[int] = ()
    timestamps: Mapping[ExecutionState, float] = field(default_factory=dict)
    python_functions: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        """The seconds that the vertex has been running, or that it ran in all; 0 if it has not started."""
        start = self.timestamps.get(ExecutionState.RUNNING)
        if start is None:
            return 0.0
        end_times = [at for state, at in self.timestamps.items() if state.is_terminal]
        return (end_times[0] if end_times else time.time()) - start


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatusEvent:
    """Base of all events; `at` is the time of the event, in seconds since the epoch."""

    at: float = field(default_factory=time.time, compare=False)


@dataclass(frozen=True, slots=True)
class GraphPlanned(JobStatusEvent):
    """The stream graph was planned, before any strategy changed it."""

    graph: StreamGraph


@dataclass(frozen=True, slots=True)
class GraphChanged(JobStatusEvent):
    """Nodes and edges outside of vertices were changed atomically; `change.decision` has the reason, unless None."""

    change: GraphChange


@dataclass(frozen=True, slots=True)
class ChangeRefused(JobStatusEvent):
    """A change that a strategy requested was refused; nothing was changed."""

    refused: RefusedChange


@dataclass(frozen=True, slots=True)
class VerticesCreated(JobStatusEvent):
    """Vertices were created; `pending_operators` operators are not part of a vertex yet."""

    vertices: tuple[VertexSnapshot, ...]
    pending_operators: int


@dataclass(frozen=True, slots=True)
class VertexChanged(JobStatusEvent):
    """The state of a vertex changed."""

    vertex: VertexSnapshot


@dataclass(frozen=True, slots=True)
class DecisionRecorded(JobStatusEvent):
    """A decision was recorded."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class DecisionSettled(JobStatusEvent):
    """The outcome of a decision, or the actual value of its estimate, was updated."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class OutputCompared(JobStatusEvent):
    """An output was compared with plain Spark, which ran its query after Penstock.

    The comparisons of a failed job have no event, as they are made after its end; `ShadowedJob.report` has them.

    `seconds` is the duration of the job until the comparison, and `spark_seconds` that of the output's query on plain
    Spark; None if unknown. `verdict` is the result of the comparison, see `penstock.shadow.comparison.Verdict`.
    """

    output: str
    verdict: str
    seconds: float | None
    spark_seconds: float | None


@dataclass(frozen=True, slots=True)
class ErrorOccurred(JobStatusEvent):
    """The job ends with `error`; `trace` is its traceback, and `vertex_id` the failed vertex, None if none failed."""

    error: BaseException
    trace: str
    vertex_id: JobVertexID | None = None


@dataclass(frozen=True, slots=True)
class JobStateChanged(JobStatusEvent):
    """The state of the job changed; `pending_operators` operators are not part of a vertex yet."""

    state: ExecutionState
    pending_operators: int = 0
