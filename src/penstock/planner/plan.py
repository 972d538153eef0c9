"""What the planner hands to the scheduler: a stream graph, and for each node and edge its part of Spark's plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.graph import UNDECIDED
from penstock.spark.catalyst import LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.connectors.base import Sink, SinkStage, SplitScan
    from penstock.connectors.coordinator import SourceCoordinator
    from penstock.connectors.scan_parallelism import ScanOptions
    from penstock.graph import StreamGraph
    from penstock.marks import Stage
    from penstock.planner.filters import Way
    from penstock.spark.files import FileListing
    from penstock.spark.plans import LogicalNode


class WriteKind(StrEnum):
    """What a vertex writes for a consumer."""

    SIDE = "side"
    """Its rows, hashed by keys."""
    OPERATOR = "operator"
    """The consumer's first operator, up to its exchange: partial aggregates, for instance."""
    ROWS = "rows"
    """Its rows, dealt out in turn."""
    BROADCAST = "broadcast"
    """Its rows as a relation, hashed for the consumer's join, that every executor can fetch."""


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """An edge in Spark's terms.

    Parameters
    ----------
    child
        The place in the consumer's plan where the producer's result belongs.
    write
        What is written; None on a FORWARD edge.
    operator
        For `WriteKind.OPERATOR`, the operator; for `WriteKind.BROADCAST`, the join.
    keys
        For `WriteKind.SIDE`, the key expressions.
    signature
        Edges from one node with equal signatures can read the same written result.
    output
        The attributes under which the consumer knows the result, if not those of `child`.
    spread_by
        For `WriteKind.SIDE` before files of a wanted size, the columns whose hash deals out rows with equal keys.
    """

    child: LogicalNode
    write: WriteKind | None = None
    operator: LogicalNode | None = None
    keys: tuple[Any, ...] = ()
    signature: str = ""
    output: Any = None
    spread_by: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node in Spark's terms.

    Parameters
    ----------
    top
        Its last operator; None of a sink, or of a node that only passes rows on.
    join_keys
        Of an equi-join, the key expressions of its ``left`` and ``right`` side.
    ways
        Of a join, the ways for filters, as its property ``filters`` lists them.
    """

    top: LogicalNode | None
    join_keys: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A source in Spark's terms.

    Parameters
    ----------
    leaf
        The relation.
    coordinator
        Asks for its parallelism.
    options
        What the user said about it.
    static
        What the connector fixed, or None.
    listing
        Lists its files; None of what Spark does not cut by size.
    size_in_bytes
        What it holds, by Spark's statistics.
    scan
        The relation with the filters right above it.
    splits
        Makes its splits once its parallelism is decided; None of what Spark cuts by itself.
    """

    leaf: LogicalNode
    coordinator: SourceCoordinator
    options: ScanOptions
    static: int | None
    listing: Callable[[], FileListing] | None
    size_in_bytes: int
    scan: LogicalNode
    splits: SplitScan | None = None

    @property
    def is_files(self) -> bool:
        """Whether Spark cuts it by a size that can be chosen."""
        return self.listing is not None

    @property
    def rows(self) -> int:
        """About how many rows it has, -1 if that is not known without reading it."""
        return -1 if self.listing is None else self.listing().rows()

    @property
    def bytes_read(self) -> int:
        """What is read of it: of files by column only the columns that are wanted; 0 if nothing is known."""
        if self.listing is not None:
            listing = self.listing()
            return int(sum(listing.sizes) * listing.fraction)
        if self.splits is not None:
            return self.splits.size_in_bytes
        return self.size_in_bytes if self.size_in_bytes < LARGE else 0


@dataclass(frozen=True)
class JobPlan:
    """A job before it runs.

    Parameters
    ----------
    graph
        The stream graph.
    nodes, edges, sources, sinks
        The parts of each, by node or edge id. A source is exchanged while the job runs once it is filtered further.
    groups
        The exchange group of an edge; edges of a group are cut alike.
    widths
        The number of subpartitions of a group where the user fixed it.
    families
        For groups of which one node writes for several: the one that stands for all. They have as many subpartitions.
    stages
        By node: the sink it belongs to, and what is done there once the sink's rows are written.
    exchanges
        By node: what consumes the rows of an adaptive exchange.
    notes
        What the planner decided, as (subject, chosen, reason).
    """

    graph: StreamGraph
    nodes: Mapping[int, NodePlan]
    edges: Mapping[str, EdgePlan]
    sources: dict[int, SourcePlan]
    sinks: Mapping[int, Sink]
    groups: Mapping[str, int]
    widths: Mapping[int, int] = field(default_factory=dict)
    families: Mapping[int, int] = field(default_factory=dict)
    stages: Mapping[int, tuple[int, SinkStage]] = field(default_factory=dict)
    exchanges: Mapping[int, Stage] = field(default_factory=dict)
    notes: tuple[tuple[str, str, str], ...] = ()

    def width(self, group: int) -> int:
        """Return the fixed number of subpartitions of a group, or `UNDECIDED`."""
        return self.widths.get(group, UNDECIDED)

    def family(self, group: int) -> int:
        """Return the group that stands for all that have as many subpartitions as one."""
        return self.families.get(group, group)
