"""What came of a job, in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.history.told import told
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from penstock.history.record import JobRecord


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What came of a job."""

    not_shuffled: int
    tasks: int | None
    seconds: float
    last_seconds: float | None
    missed: int
    decisions: int

    @classmethod
    def of(cls, record: JobRecord, last_seconds: float | None = None) -> JobSummary:
        """Return the summary of a job."""
        decisions = told(record)
        return cls(
            sum(one.not_shuffled or 0 for one in decisions),
            sum(max(v["tasks"], 0) for v in record.vertices.values()),
            record.seconds(record.changed),
            last_seconds,
            sum(one.estimate is not None and one.estimate.missed_by is not None for one in decisions),
            len(decisions),
        )

    def __str__(self) -> str:
        return f"{show_bytes(self.not_shuffled)} not shuffled, {show_count(self.tasks or 0, 'task')}, {self.seconds:.1f} s"
