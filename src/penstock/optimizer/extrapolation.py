"""What the first tasks of a step say of all of them."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 2
"""What is foreseen must be so many times a bound: the tasks that ended first may be larger than the others, and those
that run have written a part of what is counted."""
_PART = 0.25
"""So many of the tasks must have ended before anything is foreseen."""
_TASKS = 4
"""So many at least."""


@dataclass(frozen=True, slots=True)
class PartialResult:
    """What a step has written so far.

    Parameters
    ----------
    done, tasks
        How many of its tasks have ended, and how many there are.
    size
        The bytes written, compressed.
    rows
        The rows written, None where they are not counted.
    """

    done: int
    tasks: int
    size: int
    rows: int | None

    @property
    def foreseen_size(self) -> int | None:
        """The bytes of the whole result, None if too few tasks have ended."""
        return self._foreseen(self.size)

    def exceeds(self, size: int) -> bool:
        """Whether the whole result will have more bytes: it has them now, or far more are foreseen."""
        return self._exceeds(self.size, size)

    def exceeds_rows(self, rows: int) -> bool:
        """Whether the whole result will have more rows: it has them now, or far more are foreseen."""
        return self.rows is not None and self._exceeds(self.rows, rows)

    def _exceeds(self, now: int, bound: int) -> bool:
        foreseen = self._foreseen(now)
        return now > bound or (foreseen is not None and foreseen > MARGIN * bound)

    def _foreseen(self, now: int) -> int | None:
        if self.done < max(_TASKS, _PART * self.tasks):
            return None
        return round(now * self.tasks / self.done)
