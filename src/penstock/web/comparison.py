"""Two runs of one job, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.history.summary import summary_of
from penstock.history.told import told
from penstock.web import words
from penstock.web.choices import Difference, choices
from penstock.web.sources import growth
from penstock.web.steps import steps_of
from penstock.web.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.history.record import JobRecord
    from penstock.web.sources import Growth
    from penstock.web.steps import Step

_IDLE = "Seconds in which no task ran"
_SLOWER = 0.2
"""Seconds by which a step must differ to be told of."""
_MOST = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of both runs, in words; `change` is empty where there is none."""

    name: str
    before: str
    after: str
    change: str
    more: float = 0.0
    """By how much it grew, in its own unit."""


@dataclass(frozen=True, slots=True)
class StepPair:
    """The same step of both runs, or one that only one of them has."""

    label: str
    before: Step | None
    after: Step | None

    @property
    def more_seconds(self) -> float | None:
        """How much longer it took in the later run; None where it has not finished in both."""
        ends = (self.before, self.after)
        before, after = (None if one is None or one.state != "finished" else one.seconds for one in ends)
        return None if before is None or after is None else after - before

    @property
    def cost(self) -> float | None:
        """How many seconds more the later run has spent on it, all of them if it is new; None if that is not known."""
        if self.before is None and self.after is not None:
            return self.after.seconds if self.after.state == "finished" else None
        if self.after is None and self.before is not None:
            return None if self.before.seconds is None else -self.before.seconds
        return self.more_seconds

    def __str__(self) -> str:
        took = words.seconds(abs(self.cost or 0.0))
        if self.before is None:
            return f"new: {self.label}, {took}"
        if self.after is None:
            return f"gone: {self.label}, {took}"
        return f"{self.label}: {took} {'longer' if (self.cost or 0.0) > 0 else 'less'}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between an earlier and a later run.

    Parameters
    ----------
    figures
        What all of both adds up to.
    steps
        The steps of both.
    choices
        What was decided differently.
    options
        The options that differ, with both values.
    sources
        The sources of which more or fewer rows were read.
    is_running
        Whether the later run has not ended.
    """

    figures: tuple[Figure, ...]
    steps: tuple[StepPair, ...]
    choices: tuple[Difference, ...]
    options: tuple[Figure, ...]
    sources: tuple[Growth, ...]
    is_running: bool = False

    @classmethod
    def of(cls, before: JobRecord, after: JobRecord, now: float) -> Comparison:
        """Compare two runs."""
        old, new = steps_of(before, now), steps_of(after, now)
        figures = _figures(before, after, old, new, now)
        old_ended, new_ended = (record.state == "FINISHED" for record in (before, after))
        is_running = not after.is_ended
        if is_running:  # half of a figure is no change of it
            figures = (replace(figure, change="", more=0.0) for figure in figures)
        return cls(
            tuple(figures),
            tuple(_paired(old, new)),
            tuple(choices(told(before), told(after), old_ended=old_ended, new_ended=new_ended)),
            tuple(_options(before, after)),
            tuple(growth(old, new)),
            is_running,
        )

    @property
    def sentences(self) -> list[str]:
        """What a reader should know of it, most important first."""
        found = [str(one) for one in self.sources[:_MOST]]
        found += [str(one) for one in self.choices[:_MOST]]
        found += [f"{one.name} is {one.after} instead of {one.before}" for one in self.options[:_MOST]]
        if not found and not self.is_running and all(pair.more_seconds is not None for pair in self.steps):
            found.append("Nothing was decided differently, and about as many rows were read")
        found += [
            f"No task ran for {one.after}, in the run before for {one.before}"
            for one in self.figures
            if one.name == _IDLE and abs(one.more) >= _SLOWER
        ]
        return found[:_MOST] + self._times() + found[_MOST:]

    def _times(self) -> list[str]:
        """Return the steps that explain most of the seconds in between, and the one that changed most the other way."""
        sign = 1 if self.figures[0].more >= 0 else -1
        costs = {pair: sign * pair.cost for pair in self.steps if pair.cost is not None and abs(pair.cost) >= _SLOWER}
        explaining = sorted((pair for pair in costs if costs[pair] > 0), key=lambda pair: -costs[pair])
        against = sorted((pair for pair in costs if costs[pair] < 0), key=costs.__getitem__)
        return [str(pair) for pair in (*explaining[:_MOST], *against[:1])]


def _figures(
    before: JobRecord, after: JobRecord, old: Sequence[Step], new: Sequence[Step], now: float
) -> Iterable[Figure]:
    first, second = summary_of(before), summary_of(after)
    took = before.seconds(now), after.seconds(now)
    yield _figure("Seconds", *took, words.seconds)
    idle = Timing.of(old, took[0]).idle_seconds, Timing.of(new, took[1]).idle_seconds
    yield _figure(_IDLE, *idle, words.seconds)
    yield _figure("Tasks", first.tasks, second.tasks, words.count)
    for name, of in (("Rows read", _rows_read), ("Bytes read", _bytes_read), ("Bytes spilled to disk", _spilled)):
        show = words.rows if of is _rows_read else words.size
        yield _figure(name, sum(map(of, old)), sum(map(of, new)), show)
    yield _figure("Bytes not shuffled", first.not_shuffled, second.not_shuffled, words.size)
    yield _figure("Estimates that missed", first.missed, second.missed, words.count)


def _rows_read(step: Step) -> int:
    return step.rows_in or 0 if step.source else 0


def _bytes_read(step: Step) -> int:
    return step.bytes_in or 0 if step.source else 0


def _spilled(step: Step) -> int:
    return step.spilled or 0


def _figure(name: str, before: float | None, after: float | None, show: Callable[[float | None], str]) -> Figure:
    shown = show(before), show(after)
    change = ""
    if before and after is not None and shown[0] != shown[1]:
        change = (
            f"{after / before:,.1f} times as much"
            if after >= 2 * before
            else f"{100 * (after - before) / before:+.0f} %"
        )
    return Figure(name, *shown, change, (after or 0.0) - (before or 0.0))


def _paired(old: Sequence[Step], new: Sequence[Step]) -> Iterable[StepPair]:
    waiting = _numbered(old)
    for key, step in _numbered(new).items():
        yield StepPair(step.label, waiting.pop(key, None), step)
    for step in waiting.values():
        yield StepPair(step.label, step, None)


def _numbered(steps: Sequence[Step]) -> dict[tuple[str, int], Step]:
    """Return steps by what they do, and which of those that do the same."""
    seen: Counter[str] = Counter()
    found = {}
    for step in steps:
        found[step.label, seen[step.label]] = step
        seen[step.label] += 1
    return found


def _options(before: JobRecord, after: JobRecord) -> Iterable[Figure]:
    for key in sorted(before.config.keys() | after.config.keys()):
        values = [record.config.get(key, {}).get("value", "the default") for record in (before, after)]
        if values[0] != values[1]:
            yield Figure(key, values[0], values[1], "")
