"""A decision as plain values, such as a log has, in the words of people; logs of older releases are read too."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class ToldEstimate:
    """What was foreseen against what came.

    Parameters
    ----------
    what, unit, foreseen, came, missed_by, is_least
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
    is_least: bool = False

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> ToldEstimate:
        """Return an estimate that was recorded, see `Estimate.as_dict`; a newer release may tell more of it."""
        return cls(**{field.name: known[field.name] for field in fields(cls) if field.name in known})

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"

    @property
    def off_by(self) -> str:
        """How far it missed, in a few words; empty if it was right or nobody knows."""
        if self.missed_by is None:
            return ""
        if not self.came:
            return "nothing came"
        return f"{self.missed_by:,} times" if self.foreseen else "nothing foreseen"

    @property
    def miss(self) -> tuple[bool, float]:
        """How bad a miss it is: the larger, the worse. One of which nothing came, or was foreseen, has no factor."""
        if self.came and self.foreseen:
            return False, self.missed_by or 0.0
        return True, max(self.foreseen, self.came or 0.0)


@dataclass(frozen=True, slots=True)
class ToldDecision:
    """A decision that was recorded.

    Parameters
    ----------
    id
        Its number among the decisions of its job.
    kind, chosen, sentence, place, option, not_shuffled, tables
        As in `penstock.decisions.Told` and `Choice`.
    estimate
        What it was made from if that was not measured, and what came.
    is_shown
        Whether it tells a reader something; what came otherwise than decided or estimated always does.
    instead, because
        What was done if it could not be carried out, and why; empty if it was.
    pieces
        In how many pieces hot keys were computed, and what that did to their bytes; empty if none were.
    nodes
        The operators it is about, by their ids.
    at
        When it was made, seconds since the epoch.
    """

    id: int
    kind: str
    chosen: str
    sentence: str
    place: str
    option: str | None
    estimate: ToldEstimate | None
    not_shuffled: int | None
    tables: tuple[str, ...]
    is_shown: bool
    instead: str
    because: str
    pieces: str
    nodes: tuple[str, ...]
    at: float

    @classmethod
    def of(cls, number: int, decision: Mapping[str, Any]) -> ToldDecision:
        """Return the decision that a job has under a number, see `Decision.as_dict`."""
        outcome, known = decision["outcome"], decision.get("estimate")
        estimate = None if known is None else ToldEstimate.of(known)
        instead = str(outcome.get("instead", ""))
        missed = estimate is not None and estimate.missed_by is not None
        return cls(
            id=number,
            kind=decision["kind"],
            chosen=str(decision["chosen"]),
            sentence=decision.get("sentence")
            or f"{decision['subject']}: {decision['chosen']}, as {decision['reason']}",
            place=decision.get("place", ""),
            option=decision.get("option"),
            estimate=estimate,
            not_shuffled=None if instead else decision.get("not_shuffled"),
            tables=tuple(decision.get("tables", ())),
            is_shown=bool(decision.get("shown", True)) or bool(instead) or missed,
            instead=instead,
            because=str(outcome.get("because", "")),
            pieces=_pieces(outcome),
            nodes=tuple(map(str, decision.get("nodes", ()))),
            at=decision["at"],
        )

    @property
    def counts_tasks(self) -> bool:
        """Whether a number of tasks is what was decided."""
        return self.kind.endswith("parallelism")

    @property
    def is_of_tasks(self) -> bool:
        """Whether it is about a number of tasks alone, which tables of steps show with the reason."""
        return self.counts_tasks and not (self.instead or self.is_missed)

    @property
    def alike(self) -> tuple[object, ...]:
        """What is equal for decisions that are told as one."""
        what = self.sentence.removeprefix(self.place)
        return (self.kind, what, self.option, self.estimate, self.instead, self.because, self.pieces)

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
        if self.pieces:
            yield self.pieces
        if self.is_missed:
            yield f"Estimate of {self.estimate}"
        if self.option is not None:
            yield f"Change with {self.option}"


def _pieces(outcome: Mapping[str, Any]) -> str:
    match outcome:
        case {"pieces": pieces, "bytes before": before, "bytes merged": after}:
            return f"{show_bytes(before)} of partial results were merged in {pieces} pieces, into {show_bytes(after)}"
        case {"pieces": pieces, "bytes divided": divided}:
            return f"{show_bytes(divided)} of rows were divided into {pieces} pieces"
    return ""


def together(decisions: Iterable[ToldDecision], *, of_tasks: bool = True) -> list[ToldDecision]:
    """Return the decisions that tell a reader something, in order; what was decided alike at several places is one.

    Parameters
    ----------
    decisions
        All decisions of a job, or of a part of it.
    of_tasks
        Whether those that are about a number of tasks alone are wanted.
    """
    groups: dict[tuple[object, ...], list[ToldDecision]] = {}
    for one in decisions:
        if one.is_shown and (of_tasks or not one.is_of_tasks):
            groups.setdefault(one.alike, []).append(one)
    return [_one_of(group) for group in groups.values()]


def _one_of(group: list[ToldDecision]) -> ToldDecision:
    """Return decisions that are alike as one."""
    first, places = group[0], list(dict.fromkeys(one.place for one in group))
    if len(places) == 1:
        return first
    shown = places if len(places) <= _PLACES + 1 else [*places[:_PLACES], f"{len(places) - _PLACES} more"]
    what = first.sentence.removeprefix(f"{first.place}: ")
    saved = [one.not_shuffled for one in group if one.not_shuffled is not None]
    return replace(
        first,
        sentence=f"{what}; in {len(places)} places: {'; '.join(shown)}",
        not_shuffled=sum(saved) if saved else None,
        tables=tuple(dict.fromkeys(table for one in group for table in one.tables)),
        nodes=tuple(dict.fromkeys(node for one in group for node in one.nodes)),
    )


_PLACES = 2
"""So many places are named; who wants all of them finds them on the pages of the steps."""
