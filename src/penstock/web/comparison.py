"""Comparison of two runs of a job: their figures, steps, decisions, options and sources."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.decisions.log import DecisionKind
from penstock.graph.labels import listed
from penstock.web import formatting
from penstock.web.steps import Step, Timing, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from penstock.decisions.record import DecisionRecord
    from penstock.history.record import JobRecord

_IDLE = "Seconds in which no task ran"
_MIN_DIFFERENCE = 0.2
"""Seconds by which a step must differ to be reported."""
_MAX_SENTENCES = 3
GREW = 1.1
"""A source has grown or shrunk if its number of rows changed by at least this factor."""
_FIGURE = re.compile(
    r"(?<![\w.-])\d[\d.,]*(?:\s?%|\s?(?:B|[KMGT]iB)\b|\s(?:core|file|group|partition|row|step|table|task)s?\b)?"
)
"""A number with its unit; digits within a table name do not match."""
_IMPORTANCE = (DecisionKind.BROADCAST, DecisionKind.JOIN_ALGORITHM, DecisionKind.JOIN_ORDER, DecisionKind.SKEW)
"""The kinds that change the run time most often, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of both runs, formatted; `change` is empty if it did not change."""

    name: str
    before: str
    after: str
    change: str
    increase: float = 0.0
    """Later value minus earlier value, in the unit of the figure."""


@dataclass(frozen=True, slots=True)
class StepPair:
    """The same step in both runs; `before` or `after` is None if that run does not have it."""

    label: str
    before: Step | None
    after: Step | None

    @property
    def slowdown(self) -> float | None:
        """The additional seconds of the later run; None if the step did not finish in both runs."""
        steps = (self.before, self.after)
        before, after = (None if step is None or step.state != "finished" else step.seconds for step in steps)
        return None if before is None or after is None else after - before

    @property
    def cost(self) -> float | None:
        """The slowdown, or the duration of a new step, or the negative duration of a removed step; None if unknown."""
        if self.before is None and self.after is not None:
            return self.after.seconds if self.after.state == "finished" else None
        if self.after is None and self.before is not None:
            return None if self.before.seconds is None else -self.before.seconds
        return self.slowdown

    def __str__(self) -> str:
        difference = formatting.seconds(abs(self.cost or 0.0))
        if self.before is None:
            return f"new step: {self.label}, {difference}"
        if self.after is None:
            return f"removed step: {self.label}, {difference}"
        return f"{self.label}: {difference} {'slower' if (self.cost or 0.0) > 0 else 'faster'}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that differs between two runs; `before` or `after` is None if that run has no such decision."""

    kind: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.after is None:
            return f"no longer: {self.before}"
        if self.before is None:
            return f"now: {self.after}"
        location, colon, _ = self.after.partition(": ")
        before = self.before.partition(", as ")[0].removeprefix(f"{location}{colon}")
        return f"now: {self.after}; before: {before}"


@dataclass(frozen=True, slots=True)
class Growth:
    """A source and the numbers of rows that two runs read from it, which may be fewer than it has."""

    label: str
    before: int
    after: int

    @property
    def factor(self) -> float:
        """The later number of rows divided by the earlier."""
        return self.after / self.before if self.before else float("inf")

    def __str__(self) -> str:
        each = " each" if " and " in self.label else ""
        verb = "was" if self.after == 1 else "were"
        before = formatting.short_count(self.before)
        return f"{formatting.rows(self.after)}{each} of {self.label} {verb} read, {before} before"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between an earlier and a later run, which may still be running.

    It has the totals and the paired steps of both runs, the decisions and options that differ, and the sources that
    grew or shrank.
    """

    figures: tuple[Figure, ...]
    steps: tuple[StepPair, ...]
    decisions: tuple[Difference, ...]
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
        if is_running:  # totals of an unfinished run are not comparable
            figures = (replace(figure, change="", increase=0.0) for figure in figures)
        return cls(
            tuple(figures),
            tuple(_step_pairs(old, new)),
            tuple(differing_decisions(before.decisions, after.decisions, old_ended=old_ended, new_ended=new_ended)),
            tuple(_options(before, after)),
            tuple(growth(old, new)),
            is_running,
        )

    @property
    def sentences(self) -> list[str]:
        """The most important differences as sentences, the most important first."""
        sentences = [str(growth) for growth in self.sources[:_MAX_SENTENCES]]
        sentences += [str(difference) for difference in self.decisions[:_MAX_SENTENCES]]
        sentences += [
            f"{option.name} is {option.after} instead of {option.before}" for option in self.options[:_MAX_SENTENCES]
        ]
        if not sentences and not self.is_running and all(pair.slowdown is not None for pair in self.steps):
            sentences.append("All decisions are the same, and about as many rows were read")
        sentences += [
            f"No task ran for {figure.after}, in the earlier run for {figure.before}"
            for figure in self.figures
            if figure.name == _IDLE and abs(figure.increase) >= _MIN_DIFFERENCE
        ]
        return sentences[:_MAX_SENTENCES] + self._times() + sentences[_MAX_SENTENCES:]

    def _times(self) -> list[str]:
        """Describe the steps that explain most of the time difference, and the largest opposite change."""
        sign = 1 if self.figures[0].increase >= 0 else -1
        costs = {
            pair: sign * pair.cost for pair in self.steps if pair.cost is not None and abs(pair.cost) >= _MIN_DIFFERENCE
        }
        explaining = sorted((pair for pair in costs if costs[pair] > 0), key=lambda pair: -costs[pair])
        opposite = sorted((pair for pair in costs if costs[pair] < 0), key=costs.__getitem__)
        return [str(pair) for pair in (*explaining[:_MAX_SENTENCES], *opposite[:1])]


def _figures(
    before: JobRecord, after: JobRecord, old: Sequence[Step], new: Sequence[Step], now: float
) -> Iterable[Figure]:
    def totals(figure: Callable[[Step], int | None]) -> tuple[int, int]:
        return sum(figure(step) or 0 for step in old), sum(figure(step) or 0 for step in new)

    first, second = before.summary(), after.summary()
    seconds = before.seconds(now), after.seconds(now)
    yield _figure("Seconds", *seconds, formatting.seconds)
    idle = Timing.of(old, seconds[0]).idle_seconds, Timing.of(new, seconds[1]).idle_seconds
    yield _figure(_IDLE, *idle, formatting.seconds)
    yield _figure("Tasks", first.tasks, second.tasks, formatting.count)
    yield _figure("Rows read", *totals(lambda step: step.rows_in if step.source else 0), formatting.rows)
    yield _figure("Bytes read", *totals(lambda step: step.bytes_in if step.source else 0), formatting.size)
    yield _figure("Bytes spilled to disk", *totals(lambda step: step.spilled), formatting.size)
    yield _figure("Bytes not shuffled", first.not_shuffled, second.not_shuffled, formatting.size)
    yield _figure("Wrong estimates", first.missed, second.missed, formatting.count)


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


def _step_pairs(old: Sequence[Step], new: Sequence[Step]) -> Iterable[StepPair]:
    unmatched = _numbered(old)
    for key, step in _numbered(new).items():
        yield StepPair(step.label, unmatched.pop(key, None), step)
    for step in unmatched.values():
        yield StepPair(step.label, step, None)


def _numbered(steps: Sequence[Step]) -> dict[tuple[str, int], Step]:
    """Return steps by label and by their number among the steps with this label."""
    counts: Counter[str] = Counter()
    numbered = {}
    for step in steps:
        numbered[step.label, counts[step.label]] = step
        counts[step.label] += 1
    return numbered


def _options(before: JobRecord, after: JobRecord) -> Iterable[Figure]:
    for key in sorted(before.config.keys() | after.config.keys()):
        values = [record.config.get(key, {}).get("value", "the default") for record in (before, after)]
        if values[0] != values[1]:
            yield Figure(key, values[0], values[1], "")


def differing_decisions(
    old: Iterable[DecisionRecord], new: Iterable[DecisionRecord], *, old_ended: bool = True, new_ended: bool = True
) -> list[Difference]:
    """Return the decisions that differ between two runs, the most important first.

    Decisions that an unfinished run lacks are not reported.
    """
    # Equal decisions cancel out wherever they are in the graph. The others are paired by operator, then by tables.
    _, removed, added = _paired(_without_counts(old), _without_counts(new), _outcome)
    pairs, removed, added = _paired(removed, added, lambda decision: (decision.kind, decision.nodes))
    # With another size of data, operators may have other numbers, and a join of the same tables swapped sides.
    pairs_by_table, removed, added = _paired(
        removed, added, lambda decision: (decision.kind, frozenset(decision.tables) or decision.nodes)
    )
    differences = [
        Difference(before.kind, before.sentence, after.sentence)
        for before, after in pairs + pairs_by_table
        if before.is_shown or after.is_shown
    ]
    differences += [
        Difference(before.kind, before.sentence, None) for before in removed if before.is_shown and new_ended
    ]
    differences += [Difference(after.kind, None, after.sentence) for after in added if after.is_shown and old_ended]
    ranks: dict[str, int] = {kind: rank for rank, kind in enumerate(_IMPORTANCE)}
    return sorted(differences, key=lambda difference: ranks.get(difference.kind, len(ranks)))


def _without_counts(decisions: Iterable[DecisionRecord]) -> list[DecisionRecord]:
    """Leave out decisions about numbers of tasks and partitions, which differ a little in every run."""
    return [
        decision
        for decision in decisions
        if decision.instead or not (decision.sets_parallelism or decision.kind == DecisionKind.SUBPARTITIONS)
    ]


def _outcome(decision: DecisionRecord) -> Hashable:
    """Return what was done: the sentence up to its reason, without figures."""
    action = _FIGURE.sub("", decision.sentence.partition(", as ")[0])
    return decision.kind, action, _FIGURE.sub("", decision.instead)


def _paired(
    old: Sequence[DecisionRecord], new: Sequence[DecisionRecord], key: Callable[[DecisionRecord], Hashable]
) -> tuple[list[tuple[DecisionRecord, DecisionRecord]], list[DecisionRecord], list[DecisionRecord]]:
    """Return the pairs of decisions with the same key, in order, and the decisions without a partner: old, new."""
    unmatched: dict[Hashable, deque[DecisionRecord]] = {}
    for decision in old:
        unmatched.setdefault(key(decision), deque()).append(decision)
    pairs, added = [], []
    for decision in new:
        candidates = unmatched.get(key(decision))
        if candidates:
            pairs.append((candidates.popleft(), decision))
        else:
            added.append(decision)
    return pairs, [decision for decisions in unmatched.values() for decision in decisions], added


def growth(old: Sequence[Step], new: Sequence[Step]) -> list[Growth]:
    """Return the sources that grew or shrank, the largest change first."""
    before = rows_of_sources(old)
    names_by_rows: dict[tuple[int, int], list[str]] = {}  # equal numbers are mostly several reads of a table
    for name, rows in rows_of_sources(new).items():
        if name in before:
            names_by_rows.setdefault((before[name], rows), []).append(name)
    sources = [Growth(listed(names, "tables"), *rows) for rows, names in names_by_rows.items()]
    changed = [source for source in sources if source.factor >= GREW or source.factor <= 1 / GREW]
    return sorted(changed, key=lambda source: abs(source.after - source.before), reverse=True)


def rows_of_sources(steps: Sequence[Step]) -> dict[str, int]:
    """Return the number of rows read from each table; for a table that is read several times, the largest."""
    rows: dict[str, int] = {}
    for step in steps:
        if step.source and step.rows_in:
            rows[step.source] = max(step.rows_in, rows.get(step.source, 0))
    return rows
