"""The rows that an HTTP sink has sent first, to measure requests; each is left out once when the rest is sent."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class FirstRows:
    """Assignment of the first rows to the tasks that leave them out.

    A row that was claimed by an attempt of a task stays assigned to that task, and other attempts of the task claim it
    again. It is never released, as the attempt that claimed it may turn out to be successful.
    """

    def __init__(self) -> None:
        self._free: Counter[str] = Counter()
        self._assigned: defaultdict[int, Counter[str]] = defaultdict(Counter)

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the first rows."""
        return frozenset(self._free)

    def add(self, digests: Iterable[str]) -> None:
        """Add rows that were sent."""
        self._free.update(digests)

    def claim(self, task: int, claimed: Counter[str], digest: str) -> bool:
        """Return whether an attempt of a task leaves out a row.

        Parameters
        ----------
        task
            The number of the task.
        claimed
            The rows that this attempt has left out so far; updated.
        digest
            The digest of the row.
        """
        assigned = self._assigned[task]
        if claimed[digest] == assigned[digest]:
            if not self._free[digest]:
                return False
            self._free[digest] -= 1
            assigned[digest] += 1
        claimed[digest] += 1
        return True
