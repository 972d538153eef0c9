"""The decisions of a job record as sentences for the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.recorded_decisions import RecordedDecision

if TYPE_CHECKING:
    from penstock.history.record import JobRecord


def recorded_decisions(record: JobRecord) -> list[RecordedDecision]:
    """Return all decisions of a job, in order."""
    return [RecordedDecision.from_dict(number, decision) for number, decision in enumerate(record.decisions)]
