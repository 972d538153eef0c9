"""The decisions of a record in the words of people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.told import ToldDecision

if TYPE_CHECKING:
    from penstock.history.record import JobRecord


def told(record: JobRecord) -> list[ToldDecision]:
    """Return all decisions of a job, in order."""
    return [ToldDecision.of(number, decision) for number, decision in enumerate(record.decisions)]
