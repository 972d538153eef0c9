"""What people ask of a job first, answered from its record: five questions, each with what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.graph import Side
from penstock.told import together
from penstock.web import words
from penstock.web.items import Item, mark, otherwise
from penstock.web.read_less import read_less
from penstock.web.reasons import reasons_of_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.told import ToldDecision
    from penstock.web.comparison import Comparison
    from penstock.web.steps import Step
    from penstock.web.timing import Timing


@dataclass(frozen=True, slots=True)
class Finding:
    """A question and its answer.

    Parameters
    ----------
    id, question
        Its name on the page, and what is asked.
    items
        The lines of the answer, those that matter most first.
    none
        What is said where there are no lines.
    note
        What explains the lines, in small print below them.
    """

    id: str
    question: str
    items: tuple[Item, ...]
    none: str = ""
    note: str = ""


def findings(
    steps: Sequence[Step],
    timing: Timing,
    decisions: Sequence[ToldDecision],
    last_run: Comparison | None,
    links: Links,
) -> list[Finding]:
    """Return the questions with their answers.

    Parameters
    ----------
    steps, timing
        The steps of a job, and where its time went.
    decisions
        What was decided for it.
    last_run
        How it differs from the run before, if there was one.
    links
        Where steps and the comparison are shown.
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
            "What was read less than planned?",
            tuple(read_less(decisions, steps)),
            "Nothing is known of what was read.",
        ),
        Finding(
            "wrong",
            "Which estimates were wrong?",
            tuple(_wrong(decisions)),
            f"No estimate was {_MISSED}.",
            f"Missed: {_MISSED}",
        ),
        Finding(
            "last-run", "What changed since the last run?", tuple(_changed(last_run, links)), _nothing_changed(last_run)
        ),
    ]


@dataclass(frozen=True, slots=True)
class Links:
    """Where things of a job are shown."""

    job: str
    comparison: str | None = None

    def step(self, step_id: str) -> str:
        """Return the page of a step."""
        return f"/ui/jobs/{self.job}/vertices/{step_id}"


def _longest(steps: Sequence[Step], timing: Timing, links: Links) -> Iterator[Item]:
    ran = sorted((step for step in steps if step.seconds is not None), key=lambda step: -(step.seconds or 0.0))
    if not ran:
        return
    # What a reader can make faster comes first: a step that ran beside others may have taken longer for nothing.
    first = next(step for step in ran if step.id in timing.critical)
    took = f"{words.seconds(first.seconds)}, {words.share(first.seconds or 0.0, timing.total)} of the job"
    yield Item(f"Step {first.number}: {first.label}", took, links.step(first.id))
    yield from (Item(f"Step {first.number}: {text}") for text in reasons_of_time(first, steps))
    told = {first.id}
    if ran[0] is not first:
        longer = ran[0]
        told.add(longer.id)
        yield Item(
            f"Step {longer.number} took longer, but beside others, and nothing waited for its end: {longer.label}",
            words.seconds(longer.seconds),
            links.step(longer.id),
        )
        yield from (Item(f"Step {longer.number}: {text}") for text in reasons_of_time(longer, steps))
    if timing.idle_seconds >= 0.1 * timing.total > 0:
        idle = words.share(timing.idle_seconds, timing.total)
        yield Item(
            f"No task ran for {words.seconds(timing.idle_seconds)}, {idle} of the job: Spark planned, collected rows "
            "or built tables to broadcast"
        )
    for step in [step for step in ran if step.id not in told][:3]:
        yield Item(f"Then step {step.number}: {step.label}", words.seconds(step.seconds), links.step(step.id))


def _broadcasts(decisions: Sequence[ToldDecision]) -> Iterator[Item]:
    made = [one for one in decisions if one.kind == DecisionKind.BROADCAST]
    joins = {one.nodes for one in made if one.chosen in set(Side)}
    # Why one side was not broadcast is told with the other one's broadcast.
    found = together(one for one in made if one.chosen in set(Side) or one.nodes not in joins)
    last = None
    for one in sorted(found, key=_weight, reverse=True):
        note = otherwise(one)
        came = None if one.estimate is None else one.estimate.came
        took = "" if came is None else f"; it came to {words.size(came)} in memory"
        # An option that changes many of them is named once.
        yield Item(one.sentence + took, "" if note == last else note, mark=mark(one))
        last = note


def _weight(one: ToldDecision) -> tuple[bool, float, float]:
    """Return how much a broadcast tells: first what came otherwise or missed, then what spared or took most."""
    estimate = one.estimate
    size = 0.0 if estimate is None else estimate.foreseen if estimate.came is None else estimate.came
    return bool(one.instead) or one.is_missed, float(one.not_shuffled or 0), size


_MISSED = "off by a factor of two or more, or on the other side of a limit; below 4 MiB or 1,000 rows none counts"


def _wrong(decisions: Sequence[ToldDecision]) -> Iterator[Item]:
    missed = [one.estimate for one in decisions if one.estimate is not None and one.is_missed]
    for text in dict.fromkeys(map(str, sorted(missed, key=lambda one: one.miss, reverse=True))):
        yield Item(text, mark="missed")


def _changed(last_run: Comparison | None, links: Links) -> Iterator[Item]:
    if last_run is None or links.comparison is None:
        return
    took = last_run.figures[0]
    if last_run.is_running:
        yield Item(f"It has run for {took.after}; the last run took {took.before}", href=links.comparison)
    else:
        yield Item(f"It took {took.after}, the last run {took.before}", took.change, links.comparison)
    yield from (Item(text) for text in last_run.sentences)


def _nothing_changed(last_run: Comparison | None) -> str:
    return "" if last_run is not None else "No earlier run of this name is known."
