"""The context that all components of a running job share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.spark import jobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from penstock.connectors.base import SinkJob
    from penstock.decisions import DecisionLog
    from penstock.graph import JobVertex, StreamGraph
    from penstock.planner.plan import JobPlan
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.session import SessionPool


def group_of(job_id: str, vertex: JobVertex) -> str:
    """Return the Spark job group of a vertex."""
    return f"penstock-{job_id}-{vertex.id}"


class GraphOwner(Protocol):
    """A component that owns the stream graph."""

    @property
    def graph(self) -> StreamGraph:
        """The current stream graph."""


@dataclass(frozen=True, slots=True)
class BroadcastBounds:
    """Limits for broadcasts that Spark's estimates chose.

    Parameters
    ----------
    limit
        The compressed bytes beyond which a broadcast is stopped.
    memory
        The bytes that fit in memory; a broadcast that ran out of memory was larger.
    volume_per_task, most_subpartitions
        Bytes per task, and the maximum number of subpartitions, for the shuffle that replaces a stopped broadcast.
    """

    limit: int
    memory: int
    volume_per_task: int
    most_subpartitions: int


@dataclass(frozen=True, slots=True)
class JobContext:
    """A running job.

    Parameters
    ----------
    bridge, sessions
        The user's session and its clones.
    job_id
        Part of the names of Spark job groups.
    decisions
        Receives outcomes and fallbacks.
    verify
        Whether all reads and all claims about layouts are checked.
    exact_keys
        The maximum number of keys for which a dynamic filter stores exact values.
    native_memory
        Bytes of memory for DuckDB in each task that runs it; None if Spark computes everything.
    """

    bridge: Bridge
    sessions: SessionPool
    plan: JobPlan
    owner: GraphOwner
    job_id: str
    sinks: Mapping[int, SinkJob]
    decisions: DecisionLog
    verify: bool
    exact_keys: int
    broadcasts: BroadcastBounds
    native_memory: int | None = None

    @property
    def graph(self) -> StreamGraph:
        """The current stream graph."""
        return self.owner.graph

    def group_of(self, vertex: JobVertex) -> str:
        """Return the Spark job group of a vertex."""
        return group_of(self.job_id, vertex)

    def thread(self, session: Session, group: str, description: str) -> AbstractContextManager[None]:
        """Let this thread run Spark jobs in a session and a job group, with the user's own properties."""
        return jobs.vertex_thread(session, self.sessions.properties, group, description)
