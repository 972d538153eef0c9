"""What Penstock did for a job, in one line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.told import ToldDecision


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What Penstock did for a job.

    Parameters
    ----------
    not_shuffled
        About how many bytes were not shuffled because joins were broadcast while it ran.
    tasks
        The tasks that its vertices ran.
    seconds
        How long it ran, or has been running.
    last_seconds
        How long the last run of the same name took, None if there is none.
    decisions
        How many decisions tell a reader something.
    estimates, missed
        How many estimates can be compared with what came, and how many of them were missed.
    """

    not_shuffled: int
    tasks: int
    seconds: float
    last_seconds: float | None
    decisions: int
    estimates: int
    missed: int

    @classmethod
    def of(
        cls, decisions: Sequence[ToldDecision], tasks: int, seconds: float, last_seconds: float | None = None
    ) -> JobSummary:
        """Return the summary of a job with some decisions."""
        # What several decisions rest on is one estimate.
        compared = {one.estimate for one in decisions if one.estimate is not None and one.estimate.came is not None}
        return cls(
            not_shuffled=sum(one.not_shuffled or 0 for one in decisions),
            tasks=tasks,
            seconds=seconds,
            last_seconds=last_seconds,
            decisions=sum(one.is_shown for one in decisions),
            estimates=len(compared),
            missed=sum(one.missed_by is not None for one in compared),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        last = "" if self.last_seconds is None else f" (last run {self.last_seconds:.1f} s)"
        parts = [show_count(self.tasks, "task") if self.tasks else "", f"{self.seconds:.1f} s{last}"]
        if self.not_shuffled:
            parts.insert(0, f"about {show_bytes(self.not_shuffled)} not shuffled")
        if self.estimates:
            parts.append(f"{self.missed} of {show_count(self.estimates, 'estimate')} missed")
        return ", ".join(filter(None, parts))
