"""Assignment of old key groups to new ones when their number changes.

The key group of a key is its hash modulo the max parallelism. So a key of old group ``p`` can be in new group ``k``
only if ``p`` and ``k`` are equal modulo the greatest common divisor of the two numbers (Chinese remainder theorem). A
multiple splits group ``p`` into ``p, p + old, p + 2 old ...``. A divisor merges ``k, k + new ...`` into ``k``. With any
other number, a new group reads the old groups of its residue class.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import gcd

from penstock.state.key_groups import check_max_parallelism


class Change(StrEnum):
    """Relation of the new number of key groups to the old number."""

    SPLIT = "split"
    """The new number is a multiple: every old group is split into several."""
    MERGE = "merge"
    """The new number is a divisor: every new group consists of several whole old groups."""
    REGROUP = "regroup"
    """Neither: a new group consists of parts of several old groups."""


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """The work of a task: the old key groups that it reads once, and the new ones that it writes."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class StateAssignment:
    """The change of the number of key groups; raises `StateError` if a number is out of bounds."""

    old: int
    new: int

    def __post_init__(self) -> None:
        check_max_parallelism(self.old)
        check_max_parallelism(self.new)

    @cached_property
    def classes(self) -> int:
        """The number of residue classes; keys never move between classes."""
        return gcd(self.old, self.new)

    @property
    def change(self) -> Change:
        """The relation of the two numbers."""
        if self.classes == self.old:
            return Change.SPLIT
        return Change.MERGE if self.classes == self.new else Change.REGROUP

    def sources(self, group: int) -> range:
        """Return the old key groups that a new key group reads."""
        return range(group % self.classes, self.old, self.classes)

    @property
    def retained_fraction(self) -> float:
        """The fraction of the rows a new group reads that it retains, if keys are evenly distributed."""
        return self.classes / self.new

    def work_units(self, slots: int) -> list[WorkUnit]:
        """Return tasks that together write every new group once.

        There is one task for each residue class, so every old group is read once. If there are fewer classes than
        slots, the new groups of a class are distributed over more tasks, each of which reads that class again.
        """
        per_class = self.new // self.classes
        tasks = min(per_class, max(1, slots // self.classes))
        units = []
        for residue in range(self.classes):
            groups = range(residue, self.new, self.classes)
            reads = tuple(self.sources(residue))
            units += [WorkUnit(reads, tuple(groups[part::tasks])) for part in range(tasks)]
        return units
