"""The decided setup of a vertex: how its tasks read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sizing.packing import Range
    from penstock.sizing.skew_cut import Slice


@dataclass(frozen=True, slots=True)
class WholeRead:
    """Tasks read the partitions that Spark's own plan has."""


@dataclass(frozen=True, slots=True)
class CoalescedRead:
    """Each task reads a range of whole subpartitions.

    Parameters
    ----------
    ranges
        A range for each task.
    merged
        For an aggregate's input: the subpartitions whose partial results are pre-merged in chunks, with the range of
        upstream tasks of each chunk.
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

    Parameters
    ----------
    edges
        How each input edge is read, by its id; other edges are read whole.
    scans
        The session settings of sources that need their own, by node.
    slots
        The number of parts of each subpartition; rows with equal keys may be in any of them.
    shared
        Whether operators with several inputs may rely on the common partitioning of inputs with the same ranges.
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

    @property
    def is_sliced(self) -> bool:
        """Whether any edge is read in slices."""
        return any(isinstance(read, SlicedRead) for read in self.edges.values())
