"""Findings about a job: answers to five frequent questions, computed from its record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions.log import DecisionKind
from penstock.decisions.record import DecisionRecord, displayed_decisions
from penstock.web import formatting
from penstock.web.causes import reasons_of_time

if TYPE_CHECKING:
    from penstock.web.comparison import Comparison
    from penstock.web.steps import Step, Timing

_READ_KINDS = {DecisionKind.SOURCE_PARALLELISM, DecisionKind.DYNAMIC_FILTER}
"""Decisions with an estimate of the rows read, or of the fraction of rows that a filter retains."""
_MAX_REMAINING_FRACTION = 0.9
"""A reduction is reported if at most this fraction of the estimate or of the rows remains."""
_MISSED = "off by a factor of two or more, or on the wrong side of a limit; less than 4 MiB or 1,000 rows are ignored"


@dataclass(frozen=True, slots=True)
class Item:
    """A line of a finding: its text, a note in grey, the target of its link, and the text of its badge."""

    text: str
    note: str = ""
    href: str = ""
    badge: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A question about a job, and the lines of its answer, the most important first.

    `empty_text` is the answer if there are no lines, and `note` an explanation below the lines, in small print.
    """

    id: str
    question: str
    items: tuple[Item, ...]
    empty_text: str = ""
    note: str = ""


def findings(
    steps: Sequence[Step],
    timing: Timing,
    decisions: Sequence[DecisionRecord],
    last_run: Comparison | None,  # the comparison with the last run, None without an earlier run
    job_id: str,
    comparison_page: str = "",
) -> list[Finding]:
    """Answer five questions about a job; `comparison_page` is the address of the page that shows `last_run`."""
    without_last_run = "" if last_run is not None else "There is no earlier run with this name."
    broadcasts, savings = tuple(_broadcasts(decisions)), tuple(_input_savings(decisions, steps))
    misses, changes = tuple(_wrong_estimates(decisions)), tuple(_changes(last_run, comparison_page))
    longest = tuple(_longest(steps, timing, job_id))
    return [
        Finding("longest", "Which step took longest, and why?", longest, "No step has run."),
        Finding("broadcast", "What was broadcast, what was not, and why?", broadcasts, "No table was broadcast."),
        Finding(
            "read-less", "Where was less data read than planned?", savings, "No figures about the input were recorded."
        ),
        Finding(
            "wrong", "Which estimates were wrong?", misses, f"No estimate was {_MISSED}.", note=f"Missed: {_MISSED}"
        ),
        Finding("last-run", "What changed since the last run?", changes, without_last_run),
    ]


def _step_page(job_id: str, step: Step) -> str:
    return f"/ui/jobs/{job_id}/vertices/{step.id}"


def _longest(steps: Sequence[Step], timing: Timing, job_id: str) -> Iterator[Item]:
    ran = sorted((step for step in steps if step.seconds is not None), key=lambda step: -(step.seconds or 0.0))
    if not ran:
        return
    # The critical path comes first: a longer step beside it does not delay the job.
    critical = next(step for step in ran if step.id in timing.critical_path)
    share = f"{formatting.percent(critical.seconds or 0.0, timing.total_seconds)} of the job"
    note = f"{formatting.seconds(critical.seconds)}, {share}"
    yield Item(f"Step {critical.number}: {critical.label}", note, _step_page(job_id, critical))
    yield from (Item(f"Step {critical.number}: {text}") for text in reasons_of_time(critical, steps))
    reported = {critical.id}
    if ran[0] is not critical:
        longer = ran[0]
        reported.add(longer.id)
        yield Item(
            f"Step {longer.number} took longer, but in parallel to the critical path: {longer.label}",
            formatting.seconds(longer.seconds),
            _step_page(job_id, longer),
        )
        yield from (Item(f"Step {longer.number}: {text}") for text in reasons_of_time(longer, steps))
    if timing.idle_seconds >= 0.1 * timing.total_seconds > 0:
        idle = formatting.percent(timing.idle_seconds, timing.total_seconds)
        yield Item(
            f"No task ran for {formatting.seconds(timing.idle_seconds)}, {idle} of the job: Spark was planning, "
            "collecting rows or building broadcast tables"
        )
    for step in [step for step in ran if step.id not in reported][:3]:
        yield Item(f"Then step {step.number}: {step.label}", formatting.seconds(step.seconds), _step_page(job_id, step))


def _broadcasts(decisions: Sequence[DecisionRecord]) -> Iterator[Item]:
    displayed = displayed_decisions(decision for decision in decisions if decision.kind == DecisionKind.BROADCAST)
    last_note = None
    for decision in sorted(displayed, key=_importance, reverse=True):
        note = _fallback_or_option(decision)
        actual = None if decision.estimate is None else decision.estimate.actual
        size = "" if actual is None else f"; its actual size in memory is {formatting.size(actual)}"
        # Consecutive broadcasts with the same note show it once.
        yield Item(decision.sentence + size, "" if note == last_note else note, badge=_badge(decision))
        last_note = note


def _importance(decision: DecisionRecord) -> tuple[bool, float, float]:
    """Return the sort key of a broadcast: whether it has a fallback or wrong estimate, bytes not shuffled, its size."""
    estimate = decision.estimate
    size = 0.0 if estimate is None else estimate.estimated if estimate.actual is None else estimate.actual
    return bool(decision.instead) or decision.is_missed, float(decision.not_shuffled or 0), size


def _wrong_estimates(decisions: Sequence[DecisionRecord]) -> Iterator[Item]:
    missed = [decision.estimate for decision in decisions if decision.estimate is not None and decision.is_missed]
    for text in dict.fromkeys(map(str, sorted(missed, key=lambda estimate: estimate.severity, reverse=True))):
        yield Item(text, badge="missed")


def _changes(last_run: Comparison | None, comparison_page: str) -> Iterator[Item]:
    if last_run is None:
        return
    seconds = last_run.figures[0]
    if last_run.is_running:  # the current job, not the last run
        text = f"It has been running for {seconds.after}; the last run took {seconds.before}"
        yield Item(text, href=comparison_page)
    else:
        yield Item(f"It took {seconds.after}; the last run took {seconds.before}", seconds.change, comparison_page)
    yield from (Item(text) for text in last_run.sentences)


def _input_savings(decisions: Sequence[DecisionRecord], steps: Sequence[Step]) -> Iterator[Item]:
    """Describe reads and filter results smaller than estimated, or a full read; then filters and shared reads."""
    estimates = [
        decision.estimate for decision in decisions if decision.estimate is not None and decision.kind in _READ_KINDS
    ]
    overestimates = [
        estimate
        for estimate in estimates
        if estimate.actual is not None and estimate.actual <= _MAX_REMAINING_FRACTION * estimate.estimated
    ]
    overestimates.sort(key=lambda estimate: estimate.estimated - (estimate.actual or 0.0), reverse=True)
    yield from (Item(text) for text in dict.fromkeys(map(str, overestimates)))
    shared = displayed_decisions(decision for decision in decisions if decision.kind == DecisionKind.SHARING)
    filters = displayed_decisions(decision for decision in decisions if decision.kind == DecisionKind.DYNAMIC_FILTER)
    if not overestimates and any(step.source and step.rows_in for step in steps):
        yield Item(_full_read(is_filtered=bool(filters), is_shared=bool(shared)))
    for text, decision in {decision.sentence: decision for decision in filters}.items():
        yield Item(text + _selectivity(decision, steps), _fallback_or_option(decision), badge=_badge(decision))
    yield from (Item(decision.sentence.partition(": for ")[0]) for decision in shared)
    yield from _query_filters(steps, {decision.tables[0] for decision in filters if decision.tables})


def _full_read(*, is_filtered: bool, is_shared: bool) -> str:
    if not (is_filtered or is_shared):
        return "Nowhere, as far as recorded: all rows were read, but only the columns that the query needs"
    once = "; input that the plan uses several times was read once" if is_shared else ""
    dropped = "; filters dropped rows directly after reading, before any join" if is_filtered else ""
    return f"All rows were read, but only the columns that the query needs{once}{dropped}"


def _query_filters(steps: Sequence[Step], filtered_tables: Collection[str]) -> Iterator[Item]:
    """Report how many rows the query's own filters retained, for steps that only read and have no dynamic filter."""
    for step in sorted(steps, key=lambda step: -(step.rows_in or 0)):
        remaining = step.rows_out if step.label == step.source and step.source not in filtered_tables else None
        if remaining is not None and step.rows_in and remaining <= _MAX_REMAINING_FRACTION * step.rows_in:
            rows = f"{formatting.short_count(remaining)} of {formatting.rows(step.rows_in)}"
            yield Item(f"The query's own filters kept {rows} of {step.source}")


def _selectivity(decision: DecisionRecord, steps: Sequence[Step]) -> str:
    """Return, as text, the fraction of rows that a filter, or all filters of its step, retained; empty if unknown."""
    estimate = decision.estimate
    if estimate is not None and estimate.actual is not None and not estimate.is_least:
        return f"; it kept {estimate.actual:.1%} of the rows"
    for step in steps:  # `is_least`: other filters removed rows, too, so `actual` is only a lower bound
        only_reads = step.label == step.source and step.source in decision.tables[:1]
        if only_reads and step.rows_in and step.rows_out is not None:
            return f"; all filters of step {step.number} together kept {step.rows_out / step.rows_in:.1%} of the rows"
    return ""


def _badge(decision: DecisionRecord) -> str:
    """Return the badge of a decision that was not carried out or has a wrong estimate, else an empty text."""
    return "not carried out" if decision.instead else "missed" if decision.is_missed else ""


def _fallback_or_option(decision: DecisionRecord) -> str:
    """Return what was done instead if the decision was not carried out, else the option that changes it."""
    if not decision.instead:
        return "" if decision.option is None else f"change with {formatting.setting(decision.option)}"
    return f"instead: {decision.instead}" + (f", because {decision.because}" if decision.because else "")
