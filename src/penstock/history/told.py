"""The decisions of a record in the words of people, as typed values; logs of older releases are read too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.history.record import JobRecord


@dataclass(frozen=True, slots=True)
class ToldEstimate:
    """What was foreseen against what came, of a record.

    Parameters
    ----------
    what, unit, foreseen, came, missed_by
        As in `penstock.estimates.Estimate`.
    text
        Both figures in words.
    """

    what: str
    unit: str
    foreseen: float
    came: float | None
    missed_by: float | None
    text: str

    def __str__(self) -> str:
        return f"{self.what}: {self.text}" + (
            "" if self.missed_by is None else f" (missed by {self.missed_by:g} times)"
        )


@dataclass(frozen=True, slots=True)
class ToldDecision:
    """A decision of a record.

    Parameters
    ----------
    id
        Its number among the decisions of its job.
    kind, sentence, option, not_shuffled, tables
        As in `penstock.decisions.Told` and `Choice`.
    estimate
        What it was made from if that was not measured, and what came.
    is_shown
        Whether it tells a reader something; what came otherwise than decided or estimated always does.
    instead, because
        What was done if it could not be carried out, and why; empty if it was.
    nodes
        The operators it is about, by their ids.
    at
        When it was made, seconds since the epoch.
    """

    id: int
    kind: str
    sentence: str
    option: str | None
    estimate: ToldEstimate | None
    not_shuffled: int | None
    tables: tuple[str, ...]
    is_shown: bool
    instead: str
    because: str
    nodes: tuple[str, ...]
    at: float

    @classmethod
    def of(cls, number: int, decision: Mapping[str, Any]) -> ToldDecision:
        """Return the decision that a record has under a number."""
        outcome, known = decision["outcome"], decision.get("estimate")
        estimate = None if known is None else ToldEstimate(**known)
        instead = str(outcome.get("instead", ""))
        missed = estimate is not None and estimate.missed_by is not None
        return cls(
            id=number,
            kind=decision["kind"],
            sentence=decision.get("sentence")
            or f"{decision['subject']}: {decision['chosen']}, as {decision['reason']}",
            option=decision.get("option"),
            estimate=estimate,
            not_shuffled=None if instead else decision.get("not_shuffled"),
            tables=tuple(decision.get("tables", ())),
            is_shown=bool(decision.get("shown", True)) or bool(instead) or missed,
            instead=instead,
            because=str(outcome.get("because", "")),
            nodes=tuple(decision.get("nodes", ())),
            at=decision["at"],
        )

    @property
    def is_missed(self) -> bool:
        """Whether its estimate was wrong by so much that it may have been decided otherwise."""
        return self.estimate is not None and self.estimate.missed_by is not None

    @property
    def text(self) -> str:
        """All that a reader is told of it."""
        return ". ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield self.sentence
        if self.instead:
            yield f"Instead: {self.instead}, because {self.because}" if self.because else f"Instead: {self.instead}"
        if self.estimate is not None and self.estimate.came is not None:
            yield ("MISSED " if self.is_missed else "Estimate of ") + str(self.estimate)
        if self.option is not None:
            yield f"Change with {self.option}"


def told(record: JobRecord) -> list[ToldDecision]:
    """Return all decisions of a job, in order."""
    return [ToldDecision.of(number, decision) for number, decision in enumerate(record.decisions)]


def shown(record: JobRecord) -> list[ToldDecision]:
    """Return the decisions of a job that tell a reader something, in order."""
    return [one for one in told(record) if one.is_shown]
