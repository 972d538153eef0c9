"""Two runs of one job, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.history.summary import summary_of
from penstock.history.told import told
from penstock.web import words
from penstock.web.steps import steps_of
from penstock.web.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.history.record import JobRecord
    from penstock.history.told import ToldDecision
    from penstock.web.steps import Step

GREW = 1.1
"""A source has grown if it has so many times the rows; one of so many times fewer has shrunk."""
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


@dataclass(frozen=True, slots=True)
class StepPair:
    """The same step of both runs, or one that only one of them has."""

    label: str
    before: Step | None
    after: Step | None

    @property
    def more_seconds(self) -> float | None:
        """How much longer it took in the later run; None where one of them is not known."""
        before, after = (None if one is None else one.seconds for one in (self.before, self.after))
        return None if before is None or after is None else after - before


@dataclass(frozen=True, slots=True)
class Choices:
    """A decision that came out differently; None where a run has none such."""

    kind: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Growth:
    """A source whose rows differ."""

    label: str
    before: int
    after: int

    @property
    def factor(self) -> float:
        """How many times as many rows there are."""
        return self.after / self.before if self.before else float("inf")

    def __str__(self) -> str:
        verb = "grew" if self.after > self.before else "shrank"
        return f"{self.label} {verb} from {words.rows(self.before)} to {words.rows(self.after)}"


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
        The sources that have more or fewer rows.
    """

    figures: tuple[Figure, ...]
    steps: tuple[StepPair, ...]
    choices: tuple[Choices, ...]
    options: tuple[Figure, ...]
    sources: tuple[Growth, ...]

    @classmethod
    def of(cls, before: JobRecord, after: JobRecord, now: float) -> Comparison:
        """Compare two runs."""
        old, new = steps_of(before, now), steps_of(after, now)
        return cls(
            tuple(_figures(before, after, old, new, now)),
            tuple(_paired(old, new)),
            tuple(_choices(told(before), told(after))),
            tuple(_options(before, after)),
            tuple(growth(old, new)),
        )

    @property
    def sentences(self) -> list[str]:
        """What a reader should know of it, most important first."""
        found = [str(one) for one in self.sources[:_MOST]]
        found += [f"now: {one.after}" for one in self.choices if one.after is not None][:_MOST]
        found += [f"{one.name} is {one.after} instead of {one.before}" for one in self.options[:_MOST]]
        steps = sorted(self.steps, key=lambda pair: -abs(pair.more_seconds or 0.0))
        found += [
            f"{pair.label}: {words.seconds(abs(pair.more_seconds))} {'longer' if pair.more_seconds > 0 else 'less'}"
            for pair in steps[:_MOST]
            if pair.more_seconds is not None and abs(pair.more_seconds) >= _SLOWER
        ]
        return found


def _figures(
    before: JobRecord, after: JobRecord, old: Sequence[Step], new: Sequence[Step], now: float
) -> Iterable[Figure]:
    first, second = summary_of(before), summary_of(after)
    took = before.seconds(now), after.seconds(now)
    yield _figure("Seconds", *took, words.seconds)
    idle = Timing.of(old, took[0]).idle_seconds, Timing.of(new, took[1]).idle_seconds
    yield _figure("Seconds in which no task ran", *idle, words.seconds)
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
        percent = 100 * (after - before) / before
        change = f"{percent:+.0f} %" if abs(percent) < 1000 else f"{after / before:,.0f} times"
    return Figure(name, *shown, change)


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


def growth(old: Sequence[Step], new: Sequence[Step]) -> list[Growth]:
    """Return the sources of which clearly more or fewer rows were read, most changed first."""
    before = rows_of_sources(old)
    found = [Growth(name, before[name], rows) for name, rows in rows_of_sources(new).items() if name in before]
    changed = [one for one in found if one.factor >= GREW or one.factor <= 1 / GREW]
    return sorted(changed, key=lambda one: max(one.factor, 1 / one.factor), reverse=True)


def rows_of_sources(steps: Sequence[Step]) -> dict[str, int]:
    """Return how many rows were read of each table; of one that was read several times, the most."""
    found: dict[str, int] = {}
    for step in steps:
        if step.source and step.rows_in:
            found[step.source] = max(step.rows_in, found.get(step.source, 0))
    return found


def _choices(old: Sequence[ToldDecision], new: Sequence[ToldDecision]) -> Iterable[Choices]:
    waiting = _by_subject(old)
    for key, one in _by_subject(new).items():
        before = waiting.pop(key, None)
        if before is None or _chosen(before) != _chosen(one):
            yield Choices(one.kind, None if before is None else before.sentence, one.sentence)
    for one in waiting.values():
        yield Choices(one.kind, one.sentence, None)


def _by_subject(decisions: Sequence[ToldDecision]) -> dict[tuple[object, ...], ToldDecision]:
    seen: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[object, ...], ToldDecision] = {}
    for one in decisions:
        if one.is_shown:
            key = (one.kind, one.nodes)
            found[*key, seen[key]] = one
            seen[key] += 1
    return found


def _chosen(one: ToldDecision) -> tuple[str, str]:
    """Return what was done: the sentence up to its reasons, which have figures that always differ a little."""
    return one.sentence.partition(", as ")[0], one.instead


def _options(before: JobRecord, after: JobRecord) -> Iterable[Figure]:
    for key in sorted(before.config.keys() | after.config.keys()):
        values = [record.config.get(key, {}).get("value", "the default") for record in (before, after)]
        if values[0] != values[1]:
            yield Figure(key, values[0], values[1], "")
