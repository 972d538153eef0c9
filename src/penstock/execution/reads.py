"""What the tasks of a vertex read and write, as it was decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sizing.packing import Range
    from penstock.sizing.skew_cut import Slice


@dataclass(frozen=True, slots=True)
class WholeRead:
    """Tasks read what Spark's own plan gives them."""


@dataclass(frozen=True, slots=True)
class CoalescedRead:
    """Each task reads a range of whole subpartitions.

    Parameters
    ----------
    ranges
        A range for each task.
    merged
        Of an aggregate's input: the subpartitions whose partial results are merged in pieces before, and for each
        piece the upstream tasks.
    """

    ranges: Sequence[Range]
    merged: Mapping[int, Sequence[Range]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlicedRead:
    """Each task reads subpartitions or parts of them: some are split, or must meet such.

    Parameters
    ----------
    tasks
        For each task what it reads, bit by bit.
    """

    tasks: Sequence[tuple[Slice, ...]]


@dataclass(frozen=True, slots=True)
class PulledRead:
    """Each task takes the next subpartition whenever it is free.

    Parameters
    ----------
    tasks
        How many there are.
    """

    tasks: int


EdgeRead = WholeRead | CoalescedRead | SlicedRead | PulledRead


@dataclass(frozen=True, slots=True)
class VertexSetup:
    """What was decided for a vertex before it runs.

    Parameters
    ----------
    edges
        How it reads the edges that lead to it; those that are not in it are read whole.
    scans
        By source, the settings of the session in which it is read; for those that want any.
    subpartitions
        How many it writes.
    slots
        How many parts each subpartition is written in; rows with equal keys lie in any of them.
    shared
        Whether inputs that are cut alike are read as they lie by operators of several inputs.
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
        """Return what each task reads of an edge with split subpartitions, None of any other."""
        read = self.read_of(edge_id)
        return read.tasks if isinstance(read, SlicedRead) else None

    @property
    def is_sliced(self) -> bool:
        """Whether an edge is read bit by bit."""
        return any(isinstance(read, SlicedRead) for read in self.edges.values())
