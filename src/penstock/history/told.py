"""Decisions of a record as sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.history.record import JobRecord


@dataclass(frozen=True, slots=True)
class ToldEstimate:
    """What was foreseen, and what came."""

    what: str
    unit: str
    foreseen: float
    came: float | None
    missed_by: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ToldDecision:
    """A decision."""

    kind: str
    sentence: str
    option: str | None
    shown: bool
    estimate: ToldEstimate | None
    not_shuffled: int | None
    tables: tuple[str, ...]
    instead: str | None
    because: str | None
    at: float
    nodes: tuple[str, ...]

    @classmethod
    def of(cls, one: dict[str, Any]) -> ToldDecision:
        """Return what a record has of a decision."""
        estimate = one.get("estimate")
        return cls(
            one["kind"],
            one.get("sentence") or f"{one['kind']} of {one['subject']}: {one['chosen']}, as {one['reason']}",
            one.get("option"),
            one.get("shown", True),
            None if estimate is None else ToldEstimate(**estimate),
            one.get("not_shuffled"),
            tuple(one.get("tables", ())),
            one["outcome"].get("instead"),
            one["outcome"].get("because"),
            one["at"],
            tuple(one.get("nodes", ())),
        )


def told(record: JobRecord) -> list[ToldDecision]:
    """Return all decisions of a job."""
    return [ToldDecision.of(one) for one in record.decisions]
