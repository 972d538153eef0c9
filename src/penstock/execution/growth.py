"""Predicts the size of a running broadcast, and whether it is too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.optimizer.extrapolation import PartialResult
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.spark.jobs import StageFigures, StageRun


class Growth:
    """Progress of a running broadcast.

    Parameters
    ----------
    limit
        The maximum size in compressed bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._so_far = PartialResult(0, 0, 0, None)

    def is_too_large(self, stage: StageRun, figures: StageFigures) -> bool:
        """Whether its size exceeds the limit, or is expected to."""
        self._so_far = PartialResult(stage.completed, stage.tasks, figures.returned, None)
        return self._so_far.exceeds(self._limit)

    @property
    def size(self) -> int:
        """The estimated total bytes, at least the limit."""
        progress = self._so_far
        return max(self._limit, progress.size * progress.tasks // max(progress.done, 1))

    @property
    def stop_reason(self) -> str:
        """The reason why it was stopped, half a sentence."""
        progress = self._so_far
        returned = f"{progress.done} of its {progress.tasks} tasks had returned {show_bytes(progress.size)}"
        total = progress.estimated_size
        estimate = "" if total is None else f", an estimated {show_bytes(total)} in all"
        return f"the broadcast was stopped: {returned}{estimate} (limit {show_bytes(self._limit)})"
