"""The events of a job, and snapshots of its vertices.

The first event is `GraphPlanned`, unless Spark runs the query unchanged; the last is a `JobStateChanged` to a terminal
state. Snapshots are for the terminal, the API, the page and reports.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        """Whether it is a final state."""
        return self in {ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED}


@dataclass(frozen=True, slots=True)
class VertexSnapshot:
    """The state of a vertex at a point in time.

    `parallelism` is the decided number of tasks, None while undecided, and `reason` the reason for it. `tasks` is the
    number of tasks that ran, None if unknown or if nothing had to run. Bytes and rows are measured; None if unknown.
    `subpartitions` are the bytes of each subpartition it wrote; empty if unknown, and for sinks. `timestamps` is the
    time when each state was reached, in seconds since the epoch.
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

    @property
    def seconds(self) -> float:
        """The seconds it has been running, or ran."""
        start = self.timestamps.get(ExecutionState.RUNNING)
        if start is None:
            return 0.0
        ends = [at for state, at in self.timestamps.items() if state.is_terminal]
        return (ends[0] if ends else time.time()) - start


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatusEvent:
    """Base of all events; `at` is in seconds since the epoch."""

    at: float = field(default_factory=time.time, compare=False)


@dataclass(frozen=True, slots=True)
class GraphPlanned(JobStatusEvent):
    """The stream graph was planned, before any strategy changed it."""

    graph: StreamGraph


@dataclass(frozen=True, slots=True)
class GraphChanged(JobStatusEvent):
    """Pending nodes and edges were changed atomically; `change.decision` has the reason."""

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
    """The outcome of a decision was updated."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ErrorOccurred(JobStatusEvent):
    """The job ends with an error, which `Job.wait` raises; `vertex_id` is that of the failed vertex, or None."""

    error: BaseException
    trace: str
    vertex_id: JobVertexID | None = None


@dataclass(frozen=True, slots=True)
class JobStateChanged(JobStatusEvent):
    """The state of the job changed; `pending_operators` operators are not part of a vertex yet."""

    state: ExecutionState
    pending_operators: int = 0
