"""The events of a job.

The first event is `GraphPlanned`, unless Spark runs the query unchanged; the last is a `JobStateChanged` to a terminal
state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.decisions import Decision
    from penstock.events.vertex_snapshot import ExecutionState, VertexSnapshot
    from penstock.graph import GraphChange, JobVertexID, RefusedChange, StreamGraph


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
