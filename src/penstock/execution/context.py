"""What all that runs vertices of one job shares."""

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
    """Has the stream graph."""

    @property
    def graph(self) -> StreamGraph:
        """The graph as it is now."""


@dataclass(frozen=True, slots=True)
class BroadcastBounds:
    """What holds for broadcasts that Spark's estimates asked for.

    Parameters
    ----------
    limit
        The bytes, compressed, that a broadcast may have; it is stopped beyond.
    memory
        The bytes for which there is memory; one that failed had more.
    volume_per_task, most_subpartitions
        What a task should read of the rows, and in how many subpartitions they may be written, if it is stopped.
    """

    limit: int
    memory: int
    volume_per_task: int
    most_subpartitions: int


@dataclass(frozen=True, slots=True)
class JobContext:
    """A job while it runs.

    Parameters
    ----------
    bridge, sessions
        The user's session and its clones.
    plan
        The job's plan.
    owner
        Has the stream graph.
    job_id
        Part of the names of Spark job groups.
    sinks
        The opened sinks, by node.
    decisions
        Takes what came otherwise than it was decided.
    verify
        Whether every claim about rows is checked.
    exact_keys
        Up to so many keys, a dynamic filter keeps their values.
    broadcasts
        What holds for broadcasts that Spark's estimates asked for.
    native_memory
        Bytes that DuckDB may use in a task that it computes a leaf in; None if Spark computes all.
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
        """The stream graph as it is now."""
        return self.owner.graph

    def group_of(self, vertex: JobVertex) -> str:
        """Return the Spark job group of a vertex."""
        return group_of(self.job_id, vertex)

    def thread(self, session: Session, group: str, description: str) -> AbstractContextManager[None]:
        """Let this thread run Spark jobs of a session and a group, with the user's own properties."""
        return jobs.vertex_thread(session, self.sessions.properties, group, description)
