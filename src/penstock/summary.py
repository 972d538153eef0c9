"""One-line summaries of jobs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.recorded_decisions import RecordedDecision


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What Penstock did for a job.

    Parameters
    ----------
    not_shuffled
        The approximate bytes that were not shuffled because joins became broadcast joins at run time.
    seconds
        Its duration so far.
    last_seconds
        The duration of the last run of the same name, None if there is none.
    decisions
        The number of decisions that users see.
    estimates, missed
        The number of estimates with an actual value, and the number of misses.
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
        cls, decisions: Sequence[RecordedDecision], tasks: int, seconds: float, last_seconds: float | None = None
    ) -> JobSummary:
        """Return the summary of a job."""
        estimates = (decision.estimate for decision in decisions)
        # Several decisions may share an estimate.
        compared = {estimate for estimate in estimates if estimate is not None and estimate.actual is not None}
        return cls(
            not_shuffled=sum(decision.not_shuffled or 0 for decision in decisions),
            tasks=tasks,
            seconds=seconds,
            last_seconds=last_seconds,
            decisions=sum(decision.is_shown for decision in decisions),
            estimates=len(compared),
            missed=sum(estimate.missed_by is not None for estimate in compared),
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
