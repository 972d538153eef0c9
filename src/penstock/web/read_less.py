"""What of a job's sources was read less than planned, and what was dropped right after reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.told import together
from penstock.web import words
from penstock.web.items import Item, mark, otherwise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.told import ToldDecision, ToldEstimate
    from penstock.web.steps import Step

_OF_READING = {DecisionKind.SOURCE_PARALLELISM, DecisionKind.DYNAMIC_FILTER}
_CLEARLY = 0.9
"""What was read is less than planned if it is at most this part of it."""


def read_less(decisions: Sequence[ToldDecision], steps: Sequence[Step]) -> Iterator[Item]:
    """Return what was read less than planned, and which rows were dropped or not computed again, and why."""
    estimates = [one.estimate for one in decisions if one.estimate is not None and one.kind in _OF_READING]
    less = sorted(filter(_is_less, estimates), key=_less_by, reverse=True)
    yield from (Item(text) for text in dict.fromkeys(map(str, less)))
    shared = together(one for one in decisions if one.kind == DecisionKind.SHARING)
    filters = list(together(one for one in decisions if one.kind == DecisionKind.DYNAMIC_FILTER))
    if not less and any(step.source and step.rows_in for step in steps):
        yield Item(_all_read(is_filtered=bool(filters), is_shared=bool(shared)))
    for text, one in {one.sentence: one for one in filters}.items():
        yield Item(text + _kept(one, steps), otherwise(one), mark=mark(one))
    yield from (Item(one.sentence.partition(": for ")[0]) for one in shared)
    yield from _own_filters(steps, {one.tables[0] for one in filters if one.tables})


def _all_read(*, is_filtered: bool, is_shared: bool) -> str:
    if not (is_filtered or is_shared):
        return "Nothing, as far as is known: all rows were read, of the columns that the query needs"
    once = "; what the plan needs several times was read once" if is_shared else ""
    dropped = "; filters dropped rows right after that, before any join" if is_filtered else ""
    return f"All rows were read, of the columns that the query needs{once}{dropped}"


def _own_filters(steps: Sequence[Step], filtered: Collection[str]) -> Iterator[Item]:
    """Return what the query itself left of tables that nothing else has filtered."""
    for step in sorted(steps, key=lambda step: -(step.rows_in or 0)):
        kept = step.rows_out if step.label == step.source and step.source not in filtered else None
        if kept is not None and step.rows_in and kept <= _CLEARLY * step.rows_in:
            most = f"{words.short_count(kept)} of {words.rows(step.rows_in)}"
            yield Item(f"The query's own filters kept {most} of {step.source}")


def _kept(one: ToldDecision, steps: Sequence[Step]) -> str:
    """Return what a filter has kept of its rows; where a step has several filters, what they kept together."""
    if one.estimate is not None and one.estimate.came is not None and not one.estimate.is_least:
        return f"; {one.estimate.came:.1%} was kept"
    for step in steps:
        only_reads = step.label == step.source and step.source in one.tables[:1]
        if only_reads and step.rows_in and step.rows_out is not None:
            return f"; all filters of step {step.number} together kept {step.rows_out / step.rows_in:.1%}"
    return ""


def _is_less(estimate: ToldEstimate) -> bool:
    return estimate.came is not None and estimate.came <= _CLEARLY * estimate.foreseen


def _less_by(estimate: ToldEstimate) -> float:
    return estimate.foreseen - (estimate.came or 0.0)
