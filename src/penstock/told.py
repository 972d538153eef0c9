"""A decision as plain values, such as a log has, in the words of people; logs of older releases are read too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class ToldEstimate:
    """What was foreseen against what came.

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
        return f"{self.what}: {self.text}"


@dataclass(frozen=True, slots=True)
class ToldDecision:
    """A decision that was recorded.

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
        """Return the decision that a job has under a number, see `Decision.as_dict`."""
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
            nodes=tuple(map(str, decision.get("nodes", ()))),
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
        if self.is_missed:
            yield f"Estimate of {self.estimate}"
        if self.option is not None:
            yield f"Change with {self.option}"
