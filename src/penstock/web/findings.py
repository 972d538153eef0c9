"""Findings about a job: answers to the five most frequent questions, computed from its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.graph import Side
from penstock.recorded_decisions import displayed_decisions
from penstock.web import formatting
from penstock.web.input_savings import input_savings
from penstock.web.items import Item, badge, fallback_or_option
from penstock.web.reasons import reasons_of_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.recorded_decisions import RecordedDecision
    from penstock.web.comparison import Comparison
    from penstock.web.steps import Step
    from penstock.web.timing import Timing


@dataclass(frozen=True, slots=True)
class Finding:
    """A question about a job, and its answer.

    Parameters
    ----------
    id, question
        The HTML id of the finding, and the question.
    items
        The lines of the answer, the most important first.
    none
        The answer if there are no lines.
    note
        An explanation below the lines, in small print.
    """

    id: str
    question: str
    items: tuple[Item, ...]
    none: str = ""
    note: str = ""


def findings(
    steps: Sequence[Step],
    timing: Timing,
    decisions: Sequence[RecordedDecision],
    last_run: Comparison | None,
    links: Links,
) -> list[Finding]:
    """Answer the questions.

    Parameters
    ----------
    steps, timing
        The steps of a job, and where its time went.
    decisions
        The decisions of the job.
    last_run
        The comparison with the previous run; None without one.
    links
        The addresses of the pages of the steps and of the comparison.
    """
    return [
        Finding(
            "longest", "Which step took longest, and why?", tuple(_longest(steps, timing, links)), "No step has run."
        ),
        Finding(
            "broadcast",
            "What was broadcast, what was not, and why?",
            tuple(_broadcasts(decisions)),
            "No table was broadcast.",
        ),
        Finding(
            "read-less",
            "Where was less data read than planned?",
            tuple(input_savings(decisions, steps)),
            "No figures about the input were recorded.",
        ),
        Finding(
            "wrong",
            "Which estimates were wrong?",
            tuple(_wrong_estimates(decisions)),
            f"No estimate was {_MISSED}.",
            f"Missed: {_MISSED}",
        ),
        Finding(
            "last-run", "What changed since the last run?", tuple(_changes(last_run, links)), _no_last_run(last_run)
        ),
    ]


@dataclass(frozen=True, slots=True)
class Links:
    """The addresses of a job's pages."""

    job: str
    comparison: str | None = None

    def step(self, step_id: str) -> str:
        """Return the page of a step."""
        return f"/ui/jobs/{self.job}/vertices/{step_id}"


def _longest(steps: Sequence[Step], timing: Timing, links: Links) -> Iterator[Item]:
    ran = sorted((step for step in steps if step.seconds is not None), key=lambda step: -(step.seconds or 0.0))
    if not ran:
        return
    # The critical path comes first: a longer step beside it does not delay the job.
    first = next(step for step in ran if step.id in timing.critical)
    duration = f"{formatting.seconds(first.seconds)}, {formatting.share(first.seconds or 0.0, timing.total)} of the job"
    yield Item(f"Step {first.number}: {first.label}", duration, links.step(first.id))
    yield from (Item(f"Step {first.number}: {text}") for text in reasons_of_time(first, steps))
    reported = {first.id}
    if ran[0] is not first:
        longer = ran[0]
        reported.add(longer.id)
        yield Item(
            f"Step {longer.number} took longer, but in parallel to the critical path: {longer.label}",
            formatting.seconds(longer.seconds),
            links.step(longer.id),
        )
        yield from (Item(f"Step {longer.number}: {text}") for text in reasons_of_time(longer, steps))
    if timing.idle_seconds >= 0.1 * timing.total > 0:
        idle = formatting.share(timing.idle_seconds, timing.total)
        yield Item(
            f"No task ran for {formatting.seconds(timing.idle_seconds)}, {idle} of the job: Spark was planning, "
            "collecting rows or building broadcast tables"
        )
    for step in [step for step in ran if step.id not in reported][:3]:
        yield Item(f"Then step {step.number}: {step.label}", formatting.seconds(step.seconds), links.step(step.id))


def _broadcasts(decisions: Sequence[RecordedDecision]) -> Iterator[Item]:
    broadcasts = [decision for decision in decisions if decision.kind == DecisionKind.BROADCAST]
    joins = {decision.nodes for decision in broadcasts if decision.chosen in set(Side)}
    # A side that is not broadcast is left out if the other side of its join is.
    displayed = displayed_decisions(
        decision for decision in broadcasts if decision.chosen in set(Side) or decision.nodes not in joins
    )
    last_note = None
    for decision in sorted(displayed, key=_importance, reverse=True):
        note = fallback_or_option(decision)
        actual = None if decision.estimate is None else decision.estimate.actual
        size = "" if actual is None else f"; its actual size in memory is {formatting.size(actual)}"
        # An option that applies to several consecutive broadcasts is named once.
        yield Item(decision.sentence + size, "" if note == last_note else note, badge=badge(decision))
        last_note = note


def _importance(decision: RecordedDecision) -> tuple[bool, float, float]:
    """Return the rank of a broadcast: fallbacks and wrong estimates first, then by bytes not shuffled, then by size."""
    estimate = decision.estimate
    size = 0.0 if estimate is None else estimate.estimated if estimate.actual is None else estimate.actual
    return bool(decision.instead) or decision.is_missed, float(decision.not_shuffled or 0), size


_MISSED = "off by a factor of two or more, or on the wrong side of a limit; less than 4 MiB or 1,000 rows are ignored"


def _wrong_estimates(decisions: Sequence[RecordedDecision]) -> Iterator[Item]:
    missed = [decision.estimate for decision in decisions if decision.estimate is not None and decision.is_missed]
    for text in dict.fromkeys(map(str, sorted(missed, key=lambda estimate: estimate.severity, reverse=True))):
        yield Item(text, badge="missed")


def _changes(last_run: Comparison | None, links: Links) -> Iterator[Item]:
    if last_run is None or links.comparison is None:
        return
    seconds = last_run.figures[0]
    if last_run.is_running:
        text = f"It has been running for {seconds.after}; the last run took {seconds.before}"
        yield Item(text, href=links.comparison)
    else:
        yield Item(f"It took {seconds.after}; the last run took {seconds.before}", seconds.change, links.comparison)
    yield from (Item(text) for text in last_run.sentences)


def _no_last_run(last_run: Comparison | None) -> str:
    return "" if last_run is not None else "There is no earlier run with this name."
