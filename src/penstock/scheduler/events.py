"""Events that workers and users send to the scheduler; events for listeners are in `penstock.events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.graph import JobVertexID
    from penstock.optimizer.extrapolation import PartialResult


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class JobVertexInitializedEvent(JobEvent):
    """All sources of a vertex have inferred their parallelism, or failed to."""

    vertex_id: JobVertexID


@dataclass(frozen=True, slots=True)
class JobVertexFinishedEvent(JobEvent):
    """A vertex has finished, and what it wrote is measured."""

    vertex_id: JobVertexID


@dataclass(frozen=True, slots=True)
class JobVertexProgressEvent(JobEvent):
    """Some tasks of a vertex have finished, and their output is measured."""

    vertex_id: JobVertexID
    result: PartialResult


@dataclass(frozen=True, slots=True)
class JobVertexFailedEvent(JobEvent):
    """A vertex has failed."""

    vertex_id: JobVertexID
    error: BaseException


@dataclass(frozen=True, slots=True)
class JobCancelEvent(JobEvent):
    """The user has requested cancellation."""

    reason: str
