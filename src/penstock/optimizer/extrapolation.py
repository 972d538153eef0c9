"""Extrapolates the output of a step from its first tasks."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 2
"""An estimate must exceed a bound by this factor.

The first tasks may have written more than the others, and running tasks contribute a part of the measured output.
"""
_MIN_FRACTION = 0.25
"""The fraction of the tasks that must have ended before the output is estimated."""
_MIN_TASKS = 4
"""The number of tasks that must have ended before the output is estimated."""


@dataclass(frozen=True, slots=True)
class PartialResult:
    """The output of a running step so far: ended tasks, all tasks, compressed bytes, and rows (None if not counted)."""

    done: int
    tasks: int
    size: int
    rows: int | None

    @property
    def estimated_size(self) -> int | None:
        """The estimated bytes of the complete output, or None if too few tasks have ended."""
        return self._extrapolate(self.size)

    def exceeds(self, size: int) -> bool:
        """Whether the complete output will exceed a size: it already does, or the estimate is far above it."""
        return self._exceeds(self.size, size)

    def exceeds_rows(self, rows: int) -> bool:
        """Whether the complete output will exceed a row count: it already does, or the estimate is far above it."""
        return self.rows is not None and self._exceeds(self.rows, rows)

    def _exceeds(self, current: int, bound: int) -> bool:
        estimate = self._extrapolate(current)
        return current > bound or (estimate is not None and estimate > MARGIN * bound)

    def _extrapolate(self, current: int) -> int | None:
        if self.done < max(_MIN_TASKS, _MIN_FRACTION * self.tasks):
            return None
        return round(current * self.tasks / self.done)
