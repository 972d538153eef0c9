"""The input that a job did not have to read or process: smaller reads, shared reads and filters at the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.recorded_decisions import displayed_decisions
from penstock.web import formatting
from penstock.web.items import Item, badge, fallback_or_option

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.recorded_decisions import RecordedDecision, RecordedEstimate
    from penstock.web.steps import Step

_READ_KINDS = {DecisionKind.SOURCE_PARALLELISM, DecisionKind.DYNAMIC_FILTER}
_MAX_FRACTION = 0.9
"""A reduction is reported if at most this fraction of the estimate or of the rows remains."""


def input_savings(decisions: Sequence[RecordedDecision], steps: Sequence[Step]) -> Iterator[Item]:
    """Describe reads that were smaller than estimated, rows that filters dropped, and shared reads."""
    estimates = [
        decision.estimate for decision in decisions if decision.estimate is not None and decision.kind in _READ_KINDS
    ]
    smaller_reads = sorted(filter(_is_less, estimates), key=_saving, reverse=True)
    yield from (Item(text) for text in dict.fromkeys(map(str, smaller_reads)))
    shared = displayed_decisions(decision for decision in decisions if decision.kind == DecisionKind.SHARING)
    filters = list(
        displayed_decisions(decision for decision in decisions if decision.kind == DecisionKind.DYNAMIC_FILTER)
    )
    if not smaller_reads and any(step.source and step.rows_in for step in steps):
        yield Item(_full_read(is_filtered=bool(filters), is_shared=bool(shared)))
    for text, decision in {decision.sentence: decision for decision in filters}.items():
        yield Item(text + _selectivity(decision, steps), fallback_or_option(decision), badge=badge(decision))
    yield from (Item(decision.sentence.partition(": for ")[0]) for decision in shared)
    yield from _query_filters(steps, {decision.tables[0] for decision in filters if decision.tables})


def _full_read(*, is_filtered: bool, is_shared: bool) -> str:
    if not (is_filtered or is_shared):
        return "Nowhere, as far as recorded: all rows were read, but only the columns that the query needs"
    once = "; input that the plan uses several times was read once" if is_shared else ""
    dropped = "; filters dropped rows directly after reading, before any join" if is_filtered else ""
    return f"All rows were read, but only the columns that the query needs{once}{dropped}"


def _query_filters(steps: Sequence[Step], filtered: Collection[str]) -> Iterator[Item]:
    """Describe the rows that the query's own filters kept of tables without a dynamic filter."""
    for step in sorted(steps, key=lambda step: -(step.rows_in or 0)):
        remaining = step.rows_out if step.label == step.source and step.source not in filtered else None
        if remaining is not None and step.rows_in and remaining <= _MAX_FRACTION * step.rows_in:
            rows = f"{formatting.short_count(remaining)} of {formatting.rows(step.rows_in)}"
            yield Item(f"The query's own filters kept {rows} of {step.source}")


def _selectivity(decision: RecordedDecision, steps: Sequence[Step]) -> str:
    """Return the fraction of rows that a filter kept, or that all filters of its step kept together."""
    estimate = decision.estimate
    if estimate is not None and estimate.actual is not None and not estimate.is_least:
        return f"; it kept {estimate.actual:.1%} of the rows"
    for step in steps:
        only_reads = step.label == step.source and step.source in decision.tables[:1]
        if only_reads and step.rows_in and step.rows_out is not None:
            return f"; all filters of step {step.number} together kept {step.rows_out / step.rows_in:.1%} of the rows"
    return ""


def _is_less(estimate: RecordedEstimate) -> bool:
    return estimate.actual is not None and estimate.actual <= _MAX_FRACTION * estimate.estimated


def _saving(estimate: RecordedEstimate) -> float:
    return estimate.estimated - (estimate.actual or 0.0)
