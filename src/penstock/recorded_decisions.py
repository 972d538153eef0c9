"""Decisions and estimates read back from plain values, such as event logs contain, also those of older releases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class RecordedEstimate:
    """An estimate of a record, see `penstock.estimates.Estimate`; `text` has both figures."""

    what: str
    unit: str
    estimated: float
    actual: float | None
    missed_by: float | None
    text: str
    is_least: bool = False

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> RecordedEstimate:
        """Return the estimate of a record, see `Estimate.as_dict`; fields added by newer releases are ignored."""
        return cls(
            record["what"],
            record["unit"],
            record["foreseen"],
            record["came"],
            record["missed_by"],
            record["text"],
            record.get("is_least", False),
        )

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"

    @property
    def error_text(self) -> str:
        """The error of a miss as text, such as "33 times"; empty if it is not a miss."""
        if self.missed_by is None:
            return ""
        if not self.actual:
            return "actual 0"
        return f"{self.missed_by:,} times" if self.estimated else "estimated 0"

    @property
    def severity(self) -> tuple[bool, float]:
        """Sort key of a miss, larger if it is worse; misses without a factor (actual or estimated 0) are the worst."""
        if self.actual and self.estimated:
            return False, self.missed_by or 0.0
        return True, max(self.estimated, self.actual or 0.0)


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision of a record, see `penstock.decisions.Decision` and `Explanation`.

    Parameters
    ----------
    is_shown
        Whether users see it; always so after a fallback or a missed estimate.
    instead, because
        The fallback if the decision could not be carried out, and its reason; empty if it was carried out.
    chunks
        In how many chunks hot keys were computed, and their bytes, as text; empty if there were none.
    """

    id: int
    kind: str
    chosen: str
    sentence: str
    location: str
    option: str | None
    estimate: RecordedEstimate | None
    not_shuffled: int | None
    tables: tuple[str, ...]
    is_shown: bool
    instead: str
    because: str
    chunks: str
    nodes: tuple[str, ...]
    at: float

    @classmethod
    def from_dict(cls, number: int, record: Mapping[str, Any]) -> RecordedDecision:
        """Return the decision of a record, see `Decision.as_dict`, with its number in the job."""
        outcome, estimated = record["outcome"], record.get("estimate")
        estimate = None if estimated is None else RecordedEstimate.from_dict(estimated)
        instead = str(outcome.get("instead", ""))
        missed = estimate is not None and estimate.missed_by is not None
        return cls(
            id=number,
            kind=record["kind"],
            chosen=str(record["chosen"]),
            sentence=record.get("sentence") or f"{record['subject']}: {record['chosen']}, as {record['reason']}",
            location=record.get("place", ""),
            option=record.get("option"),
            estimate=estimate,
            not_shuffled=None if instead else record.get("not_shuffled"),
            tables=tuple(record.get("tables", ())),
            is_shown=bool(record.get("shown", True)) or bool(instead) or missed,
            instead=instead,
            because=str(outcome.get("because", "")),
            chunks=_chunks_text(outcome),
            nodes=tuple(map(str, record.get("nodes", ()))),
            at=record["at"],
        )

    @property
    def sets_parallelism(self) -> bool:
        """Whether it decides a number of tasks."""
        return self.kind.endswith("parallelism")

    @property
    def is_plain_parallelism(self) -> bool:
        """Whether it only decides a number of tasks, without fallback or miss: the table of steps shows it already."""
        return self.sets_parallelism and not (self.instead or self.is_missed)

    @property
    def merge_key(self) -> tuple[object, ...]:
        """Key that is equal for decisions that differ only in their location."""
        what = self.sentence.removeprefix(self.location)
        return (self.kind, what, self.option, self.estimate, self.instead, self.because, self.chunks)

    @property
    def is_missed(self) -> bool:
        """Whether its estimate was a miss."""
        return self.estimate is not None and self.estimate.missed_by is not None

    @property
    def text(self) -> str:
        """The decision with fallback, missed estimate and option, as sentences."""
        return ". ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        yield self.sentence
        if self.instead:
            yield f"Instead: {self.instead}, because {self.because}" if self.because else f"Instead: {self.instead}"
        if self.chunks:
            yield self.chunks
        if self.is_missed:
            yield f"Estimate of {self.estimate}"
        if self.option is not None:
            yield f"Change with {self.option}"


def _chunks_text(outcome: Mapping[str, Any]) -> str:
    match outcome:
        case {"pieces": chunks, "bytes before": before, "bytes merged": after}:
            return f"{show_bytes(before)} of partial results were merged in {chunks} chunks, into {show_bytes(after)}"
        case {"pieces": chunks, "bytes divided": size}:
            return f"{show_bytes(size)} of rows were divided into {chunks} chunks"
    return ""


def displayed_decisions(
    decisions: Iterable[RecordedDecision], *, with_parallelism: bool = True
) -> list[RecordedDecision]:
    """Return the decisions that users see, in order; equal decisions at several locations are merged.

    `with_parallelism` includes decisions that only set a number of tasks.
    """
    groups: dict[tuple[object, ...], list[RecordedDecision]] = {}
    for decision in decisions:
        if decision.is_shown and (with_parallelism or not decision.is_plain_parallelism):
            groups.setdefault(decision.merge_key, []).append(decision)
    return [_merged(group) for group in groups.values()]


_LOCATIONS = 2
"""Locations named in a merged decision; the pages of the steps show all of them."""


def _merged(group: list[RecordedDecision]) -> RecordedDecision:
    first, locations = group[0], list(dict.fromkeys(decision.location for decision in group))
    if len(locations) == 1:
        return first
    shown = locations
    if len(locations) > _LOCATIONS + 1:
        shown = [*locations[:_LOCATIONS], f"{len(locations) - _LOCATIONS} more"]
    what = first.sentence.removeprefix(f"{first.location}: ")
    sizes = [decision.not_shuffled for decision in group if decision.not_shuffled is not None]
    return replace(
        first,
        sentence=f"{what}; in {len(locations)} places: {'; '.join(shown)}",
        not_shuffled=sum(sizes) if sizes else None,
        tables=tuple(dict.fromkeys(table for decision in group for table in decision.tables)),
        nodes=tuple(dict.fromkeys(node for decision in group for node in decision.nodes)),
    )
