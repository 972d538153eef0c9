"""The rows of an HTTP sink that were sent first, to learn what a request takes: each is left out once of the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class FirstRows:
    """Knows which tasks leave out which of these rows.

    A row that an attempt of a task has claimed stays with that task: another attempt claims it again. It is never given
    back, as the attempt that claimed it may be the one that counts after all.
    """

    def __init__(self) -> None:
        self._free: Counter[str] = Counter()
        self._of_tasks: defaultdict[int, Counter[str]] = defaultdict(Counter)

    @property
    def digests(self) -> frozenset[str]:
        """What these rows are."""
        return frozenset(self._free)

    def add(self, digests: Iterable[str]) -> None:
        """Take notice of rows that were sent."""
        self._free.update(digests)

    def claim(self, task: int, claimed: Counter[str], digest: str) -> bool:
        """Return whether an attempt leaves out a row.

        Parameters
        ----------
        task
            The number of its task.
        claimed
            What this attempt has claimed so far; a row that it leaves out is added.
        digest
            What the row is.
        """
        held = self._of_tasks[task]
        if claimed[digest] == held[digest]:
            if not self._free[digest]:
                return False
            self._free[digest] -= 1
            held[digest] += 1
        claimed[digest] += 1
        return True
