"""The context that all components of a running job share, and the decided setup of a vertex."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.spark.run import jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from penstock.connectors.core.base import SinkJob
    from penstock.decisions.log import DecisionLog
    from penstock.engine.interface import NativeExecution
    from penstock.graph import JobVertex, StreamGraph
    from penstock.planner.plan import JobPlan
    from penstock.sizing.packing import Range
    from penstock.sizing.skew_cut import Slice
    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.bridge.session import SessionPool


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

    `limit` are the compressed bytes beyond which a broadcast is stopped. `memory` are the bytes that fit in memory; a
    broadcast that ran out of memory was larger. `volume_per_task` and `most_subpartitions` are bytes per task, and the
    maximum number of subpartitions, for the shuffle that replaces a stopped broadcast.
    """

    limit: int
    memory: int
    volume_per_task: int
    most_subpartitions: int


@dataclass(frozen=True, slots=True)
class JobContext:
    """A running job.

    `job_id` is part of the names of Spark job groups. With `verify`, all reads and all claims about layouts are
    checked. `exact_keys` is the maximum number of keys for which a dynamic filter stores exact values. Without a
    `native` engine, Spark computes everything.
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
    native: NativeExecution | None = None

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


@dataclass(frozen=True, slots=True)
class WholeRead:
    """Tasks read the partitions that Spark's own plan has."""


@dataclass(frozen=True, slots=True)
class CoalescedRead:
    """Each task reads a range of whole subpartitions.

    `ranges` is a range for each task. `merged` has, for an aggregate's input, the subpartitions whose partial results
    are pre-merged in chunks, with the range of upstream tasks of each chunk.
    """

    ranges: Sequence[Range]
    merged: Mapping[int, Sequence[Range]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlicedRead:
    """Each task reads subpartitions or slices of them, because some are split or joined to split subpartitions."""

    tasks: Sequence[tuple[Slice, ...]]


@dataclass(frozen=True, slots=True)
class PulledRead:
    """Each task pulls the next subpartition when it is free."""

    tasks: int


EdgeRead = WholeRead | CoalescedRead | SlicedRead | PulledRead


@dataclass(frozen=True, slots=True)
class VertexSetup:
    """The decisions for a vertex before it runs.

    `edges` says how each input edge is read, by its id; other edges are read whole. `scans` are the session settings of
    sources that need their own, by node. `slots` is the number of parts of each subpartition; rows with equal keys may
    be in any of them. `shared` says whether operators with several inputs may rely on the common partitioning of inputs
    with the same ranges.
    """

    edges: Mapping[str, EdgeRead] = field(default_factory=dict)
    scans: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    subpartitions: int = 1
    slots: int = 1
    shared: bool = True

    def read_of(self, edge_id: str) -> EdgeRead:
        """Return how an edge is read."""
        return self.edges.get(edge_id, WholeRead())

    def slices_of(self, edge_id: str) -> Sequence[tuple[Slice, ...]] | None:
        """Return the slices that each task reads of an edge; None if it is not read in slices."""
        read = self.read_of(edge_id)
        return read.tasks if isinstance(read, SlicedRead) else None
