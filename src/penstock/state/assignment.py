"""The old key groups that each new one is made of when their number changes.

With groups numbered by hash modulo max parallelism, a key of old group ``p`` can be in new group ``k`` only where
``p`` and ``k`` are equal modulo the greatest common divisor of the two numbers (Chinese remainder theorem). So a
multiple splits group ``p`` into ``p, p + old, p + 2 old ...``, a divisor merges ``k, k + new ...`` into ``k``, and any
other number reads from within its own residue class.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import gcd

from penstock.state.key_groups import check_max_parallelism


class Change(StrEnum):
    """How one number of key groups relates to another."""

    SPLIT = "split"
    """The new number is a multiple: every old group becomes several."""
    MERGE = "merge"
    """The new number is a divisor: every new group is made of several whole ones."""
    REGROUP = "regroup"
    """Neither: groups are cut and put together again."""


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """What one task does: read some old key groups once, and write some new ones."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class StateAssignment:
    """The change from one number of key groups to another.

    Parameters
    ----------
    old
        The current number.
    new
        The new number.

    Raises
    ------
    StateError
        If one of them is out of bounds.
    """

    old: int
    new: int

    def __post_init__(self) -> None:
        check_max_parallelism(self.old)
        check_max_parallelism(self.new)

    @cached_property
    def classes(self) -> int:
        """The number of residue classes: nothing ever moves from one to another."""
        return gcd(self.old, self.new)

    @property
    def change(self) -> Change:
        """How the numbers relate."""
        if self.classes == self.old:
            return Change.SPLIT
        return Change.MERGE if self.classes == self.new else Change.REGROUP

    def sources(self, group: int) -> range:
        """Return the old key groups that a new one reads."""
        return range(group % self.classes, self.old, self.classes)

    @property
    def kept(self) -> float:
        """The fraction of the rows a new group reads that it keeps, if keys are evenly distributed."""
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
