"""How large a broadcast will be that runs, and whether that is too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.optimizer.extrapolation import PartialResult
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.spark.jobs import StageFigures, StageRun


class Growth:
    """What is known of a broadcast that runs.

    Parameters
    ----------
    limit
        The bytes, compressed, that it may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._so_far = PartialResult(0, 0, 0, None)

    def is_too_large(self, stage: StageRun, figures: StageFigures) -> bool:
        """Whether it has, or will have, more bytes than it may."""
        self._so_far = PartialResult(stage.completed, stage.tasks, figures.returned, None)
        return self._so_far.exceeds(self._limit)

    @property
    def size(self) -> int:
        """About how many bytes it has in all, if it is too large."""
        found = self._so_far
        return max(self._limit, found.size * found.tasks // max(found.done, 1))

    @property
    def told(self) -> str:
        """Why it was stopped, half a sentence."""
        found = self._so_far
        given = f"{found.done} of its {found.tasks} tasks had given {show_bytes(found.size)}"
        foreseen = f", so about {show_bytes(found.foreseen_size)} in all" if found.foreseen_size is not None else ""
        return f"the broadcast was stopped: {given}{foreseen}, where {show_bytes(self._limit)} are allowed"
