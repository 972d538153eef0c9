"""All that can happen to a job.

A job begins with `GraphPlanned`, unless Spark is handed the query whole; its last event is a `JobStateChanged` to a
state after which nothing comes.
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
    """Base of all events.

    Parameters
    ----------
    at
        When it happened, seconds since the epoch.
    """

    at: float = field(default_factory=time.time, compare=False)


@dataclass(frozen=True, slots=True)
class GraphPlanned(JobStatusEvent):
    """The stream graph was planned; no strategy has seen it yet."""

    graph: StreamGraph


@dataclass(frozen=True, slots=True)
class GraphChanged(JobStatusEvent):
    """Pending nodes and edges were changed, all of them at once; `change.decision` says why."""

    change: GraphChange


@dataclass(frozen=True, slots=True)
class ChangeRefused(JobStatusEvent):
    """A strategy asked for a change that cannot be; nothing was changed."""

    refused: RefusedChange


@dataclass(frozen=True, slots=True)
class VerticesCreated(JobStatusEvent):
    """Vertices were made.

    Parameters
    ----------
    vertices
        The vertices.
    pending_operators
        How many operators are part of no vertex yet.
    """

    vertices: tuple[VertexSnapshot, ...]
    pending_operators: int


@dataclass(frozen=True, slots=True)
class VertexChanged(JobStatusEvent):
    """A vertex reached another state."""

    vertex: VertexSnapshot


@dataclass(frozen=True, slots=True)
class DecisionMade(JobStatusEvent):
    """Something was decided."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class DecisionSettled(JobStatusEvent):
    """It is known better what came of a decision."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ErrorOccurred(JobStatusEvent):
    """The job ends without success.

    Parameters
    ----------
    error
        What `Job.wait` raises.
    trace
        Its traceback at the end of the job, in words.
    vertex_id
        The vertex that failed, or None.
    """

    error: BaseException
    trace: str
    vertex_id: JobVertexID | None = None


@dataclass(frozen=True, slots=True)
class JobStateChanged(JobStatusEvent):
    """The job reached another state.

    Parameters
    ----------
    state
        The state.
    pending_operators
        How many operators are part of no vertex yet.
    """

    state: ExecutionState
    pending_operators: int = 0
