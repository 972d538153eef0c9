"""The context that all components of a running job share, and the decisions about a vertex before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.spark.run import jobs

if TYPE_CHECKING:
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


def spark_job_group(job_id: str, vertex: JobVertex) -> str:
    """Return the Spark job group of a vertex."""
    return f"penstock-{job_id}-{vertex.id}"


class GraphOwner(Protocol):
    """The component that holds the current stream graph of a job."""

    @property
    def graph(self) -> StreamGraph:
        """The current stream graph."""


@dataclass(frozen=True, slots=True)
class BroadcastBounds:
    """Limits of broadcasts that were chosen because of Spark's size estimates, which may be wrong.

    A broadcast is stopped beyond `limit` compressed bytes. `memory` is the number of bytes that fit in memory; if a
    broadcast runs out of memory, its size is assumed to be at least this number. `volume_per_task` (bytes) and
    `max_subpartitions` apply to the shuffle that replaces a stopped or failed broadcast.
    """

    limit: int
    memory: int
    volume_per_task: int
    max_subpartitions: int


@dataclass(frozen=True, slots=True)
class JobContext:
    """What the components of a running job share.

    `job_id` is part of the names of Spark job groups. `sinks` has the open sink jobs, by node id. `verify` says whether
    to check that rows are read exactly once, and are in the partitions that plans declare. `exact_keys` is the maximum
    number of keys of which a dynamic filter stores exact values. `native` is None if Spark computes everything.
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
    broadcast_bounds: BroadcastBounds
    native: NativeExecution | None = None

    @property
    def graph(self) -> StreamGraph:
        """The current stream graph."""
        return self.owner.graph

    @property
    def has_native_steps(self) -> bool:
        """Whether a native engine may compute all steps, not only steps that call Python functions or parse JSON."""
        return self.native is not None and not self.native.only_expensive

    def spark_job_group(self, vertex: JobVertex) -> str:
        """Return the Spark job group of a vertex."""
        return spark_job_group(self.job_id, vertex)

    def thread(self, session: Session, group: str, description: str) -> AbstractContextManager[None]:
        """Set the session, job group and user's properties of this thread's Spark jobs, see `jobs.vertex_thread`."""
        return jobs.vertex_thread(session, self.sessions.properties, group, description)


@dataclass(frozen=True, slots=True)
class UnchangedRead:
    """Spark's own plan of the result determines what each task reads: a partition, or the whole broadcast."""


@dataclass(frozen=True, slots=True)
class CoalescedRead:
    """Each task reads a range of whole subpartitions.

    `ranges` has a range for each task. `merge_ranges` is only for the input of an aggregate: its keys are subpartitions
    whose partial results are first merged in chunks; its values are the chunks, as ranges of upstream tasks.
    """

    ranges: Sequence[Range]
    merge_ranges: Mapping[int, Sequence[Range]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlicedRead:
    """Each of `tasks` reads slices: the rows of some subpartitions that all or some upstream tasks wrote (`Slice`)."""

    tasks: Sequence[tuple[Slice, ...]]


@dataclass(frozen=True, slots=True)
class PulledRead:
    """Each of `tasks` tasks pulls the next subpartition whenever it is idle."""

    tasks: int


EdgeRead = UnchangedRead | CoalescedRead | SlicedRead | PulledRead
"""How the tasks of a vertex read an input."""


@dataclass(frozen=True, slots=True)
class VertexSetup:
    """The decisions for a vertex before it runs.

    `edges` says how input edges are read, by edge id; for others, `UnchangedRead` applies. `scan_settings` are session
    settings for individual sources, by node id. `subpartitions` is the number of subpartitions that the vertex writes,
    and `slots` the number of parts of each; rows with equal keys may be in any slot. `has_common_layout` says whether
    an operator with several inputs may treat inputs that are read by the same ranges as co-partitioned.
    """

    edges: Mapping[str, EdgeRead] = field(default_factory=dict)
    scan_settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    subpartitions: int = 1
    slots: int = 1
    has_common_layout: bool = True

    def read_of(self, edge_id: str) -> EdgeRead:
        """Return how an edge is read."""
        return self.edges.get(edge_id, UnchangedRead())

    def slices_of(self, edge_id: str) -> Sequence[tuple[Slice, ...]] | None:
        """Return the slices that each task reads of an edge; None if the edge is not read in slices."""
        read = self.read_of(edge_id)
        return read.tasks if isinstance(read, SlicedRead) else None
