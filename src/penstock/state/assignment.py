"""Assignment of old key groups to new ones when their number changes.

The key group of a key is its hash modulo the max parallelism. So a key of old group ``p`` can be in new group ``k``
only if ``p`` and ``k`` are equal modulo the greatest common divisor of the two numbers (Chinese remainder theorem). If
the new number is a multiple, old group ``p`` is split into ``p, p + old, p + 2 old ...``. If it is a divisor, the old
groups ``k, k + new ...`` are merged into ``k``. Otherwise a new group reads the old groups of its residue class.
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
    """The work of a task: the old key groups that it reads, and the new key groups that it writes."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class StateAssignment:
    """The change of the number of key groups from `old` to `new`; raises `StateError` for an invalid number.

    >>> StateAssignment(4, 8).change.value, StateAssignment(8, 4).change.value
    ('split', 'merge')
    """

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
        """Of the rows that a new group reads, the fraction that belongs to it, if keys are evenly distributed."""
        return self.classes / self.new

    def work_units(self, slots: int) -> list[WorkUnit]:
        """Return tasks that together write every new group once.

        A task processes a residue class, so every old group is read once. If there are at least twice as many `slots`
        (tasks that can run at the same time) as classes, a class with several new groups is read by several tasks.

        >>> StateAssignment(4, 2).work_units(slots=2)
        [WorkUnit(reads=(0, 2), writes=(0,)), WorkUnit(reads=(1, 3), writes=(1,))]
        """
        groups_per_class = self.new // self.classes
        tasks_per_class = min(groups_per_class, max(1, slots // self.classes))
        units = []
        for residue in range(self.classes):
            groups = range(residue, self.new, self.classes)
            reads = tuple(self.sources(residue))
            units += [WorkUnit(reads, tuple(groups[task::tasks_per_class])) for task in range(tasks_per_class)]
        return units
