"""Comparison of two runs of a job: their figures, steps, decisions, options and sources."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.decisions.log import DecisionKind
from penstock.graph.labels import listed
from penstock.web import formatting
from penstock.web.steps import Step, Timing, steps_of

if TYPE_CHECKING:
    from penstock.decisions.record import DecisionRecord
    from penstock.history.record import JobRecord

_IDLE_FIGURE = "Seconds in which no task ran"
_MIN_SECONDS = 0.2
"""The smallest difference of two durations to report, in seconds."""
_MAX_SENTENCES = 3
GROWTH_FACTOR = 1.1
"""A source has grown or shrunk if its number of rows changed by at least this factor."""
_NUMBER = re.compile(
    r"(?<![\w.-])\d[\d.,]*(?:\s?%|\s?(?:B|[KMGT]iB)\b|\s(?:core|file|group|partition|row|step|table|task)s?\b)?"
)
"""A number with its unit; digits within the name of a table do not match."""
_IMPORTANCE = (DecisionKind.BROADCAST, DecisionKind.JOIN_ALGORITHM, DecisionKind.JOIN_ORDER, DecisionKind.SKEW)
"""The kinds of decisions that change the run time most often, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or an option of both runs, as text; `change` is the relative change, empty if none is shown."""

    name: str
    before: str
    after: str
    change: str
    increase: float = 0.0
    """The later value minus the earlier value, in the unit of the figure."""


@dataclass(frozen=True, slots=True)
class StepPair:
    """The same step in both runs; `before` or `after` is None if that run does not have it."""

    label: str
    before: Step | None
    after: Step | None

    @property
    def slowdown(self) -> float | None:
        """The additional seconds of the later run; None unless the step finished in both runs."""
        steps = (self.before, self.after)
        before, after = (None if step is None or step.state != "finished" else step.seconds for step in steps)
        return None if before is None or after is None else after - before

    @property
    def cost(self) -> float | None:
        """The seconds that the step adds to the later run, negative for a removed or faster step; None if unknown."""
        if self.before is None and self.after is not None:
            return self.after.seconds if self.after.state == "finished" else None
        if self.after is None and self.before is not None:
            return None if self.before.seconds is None else -self.before.seconds
        return self.slowdown

    def __str__(self) -> str:
        seconds = formatting.seconds(abs(self.cost or 0.0))
        if self.before is None:
            return f"new step: {self.label}, {seconds}"
        if self.after is None:
            return f"removed step: {self.label}, {seconds}"
        return f"{self.label}: {seconds} {'slower' if (self.cost or 0.0) > 0 else 'faster'}"


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
        location, colon, _ = self.after.partition(": ")  # not repeated in the text of the earlier decision
        before = self.before.partition(", as ")[0].removeprefix(f"{location}{colon}")
        return f"now: {self.after}; before: {before}"


@dataclass(frozen=True, slots=True)
class Growth:
    """The rows that two runs read from a source, or from each of several sources, after pruning."""

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
    """The differences between an earlier and a later run; the later run may still be running.

    `figures` are the totals of both runs, `steps` their paired steps, `decisions` and `options` those that differ, and
    `sources` those that grew or shrank.
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
        old_steps, new_steps = steps_of(before, now), steps_of(after, now)
        figures = _figures(before, after, old_steps, new_steps, now)
        finished = {"old_finished": before.state == "FINISHED", "new_finished": after.state == "FINISHED"}
        is_running = not after.is_ended
        if is_running:  # totals of an unfinished run are not comparable
            figures = (replace(figure, change="", increase=0.0) for figure in figures)
        return cls(
            tuple(figures),
            tuple(_step_pairs(old_steps, new_steps)),
            tuple(differing_decisions(before.decisions, after.decisions, **finished)),
            tuple(_options(before, after)),
            tuple(growth(old_steps, new_steps)),
            is_running,
        )

    @property
    def sentences(self) -> list[str]:
        """The main differences as sentences, the most important first."""
        sentences = [str(source) for source in self.sources[:_MAX_SENTENCES]]
        sentences += [str(difference) for difference in self.decisions[:_MAX_SENTENCES]]
        sentences += [
            f"{option.name} is {option.after} instead of {option.before}" for option in self.options[:_MAX_SENTENCES]
        ]
        if not sentences and not self.is_running and all(pair.slowdown is not None for pair in self.steps):
            sentences.append("All decisions are the same, and about as many rows were read")
        sentences += [
            f"No task ran for {figure.after}, in the earlier run for {figure.before}"
            for figure in self.figures
            if figure.name == _IDLE_FIGURE and abs(figure.increase) >= _MIN_SECONDS
        ]
        # The first sentences are causes, so the steps whose durations they explain follow.
        return sentences[:_MAX_SENTENCES] + self._time_sentences() + sentences[_MAX_SENTENCES:]

    def _time_sentences(self) -> list[str]:
        """Describe the steps that explain most of the time difference, and the largest difference of opposite sign."""
        sign = 1 if self.figures[0].increase >= 0 else -1  # the first figure is the duration
        shares = {
            pair: sign * pair.cost for pair in self.steps if pair.cost is not None and abs(pair.cost) >= _MIN_SECONDS
        }
        explaining = sorted((pair for pair in shares if shares[pair] > 0), key=lambda pair: -shares[pair])
        opposite = sorted((pair for pair in shares if shares[pair] < 0), key=shares.__getitem__)
        return [str(pair) for pair in (*explaining[:_MAX_SENTENCES], *opposite[:1])]


def _figures(
    before: JobRecord, after: JobRecord, old_steps: Sequence[Step], new_steps: Sequence[Step], now: float
) -> Iterable[Figure]:
    def totals(figure: Callable[[Step], int | None]) -> tuple[int, int]:
        return sum(figure(step) or 0 for step in old_steps), sum(figure(step) or 0 for step in new_steps)

    old, new = before.summary(), after.summary()
    seconds = before.seconds_without_comparison(now), after.seconds_without_comparison(now)
    yield _figure("Seconds", *seconds, formatting.seconds)
    idle = Timing.of(old_steps, seconds[0]).idle_seconds, Timing.of(new_steps, seconds[1]).idle_seconds
    yield _figure(_IDLE_FIGURE, *idle, formatting.seconds)
    yield _figure("Tasks", old.tasks, new.tasks, formatting.count)
    yield _figure("Rows read", *totals(lambda step: step.rows_in if step.source else 0), formatting.rows)
    yield _figure("Bytes read", *totals(lambda step: step.bytes_in if step.source else 0), formatting.size)
    yield _figure("Bytes spilled to disk", *totals(lambda step: step.spilled), formatting.size)
    yield _figure("Bytes not shuffled", old.not_shuffled, new.not_shuffled, formatting.size)
    yield _figure("Wrong estimates", old.missed, new.missed, formatting.count)


def _figure(name: str, before: float | None, after: float | None, show: Callable[[float | None], str]) -> Figure:
    texts = show(before), show(after)
    change = ""
    if before and after is not None and texts[0] != texts[1]:
        change = (
            f"{after / before:,.1f} times as much"
            if after >= 2 * before
            else f"{100 * (after - before) / before:+.0f} %"
        )
    return Figure(name, *texts, change, (after or 0.0) - (before or 0.0))


def _step_pairs(old_steps: Sequence[Step], new_steps: Sequence[Step]) -> Iterable[StepPair]:
    unmatched = _by_label_and_number(old_steps)
    for key, step in _by_label_and_number(new_steps).items():
        yield StepPair(step.label, unmatched.pop(key, None), step)
    for step in unmatched.values():
        yield StepPair(step.label, step, None)


def _by_label_and_number(steps: Sequence[Step]) -> dict[tuple[str, int], Step]:
    """Return the steps, keyed by label and by number among the steps with this label."""
    counts: Counter[str] = Counter()
    steps_by_key = {}
    for step in steps:
        steps_by_key[step.label, counts[step.label]] = step
        counts[step.label] += 1
    return steps_by_key


def _options(before: JobRecord, after: JobRecord) -> Iterable[Figure]:
    for key in sorted(before.config.keys() | after.config.keys()):
        values = [record.config.get(key, {}).get("value", "the default") for record in (before, after)]
        if values[0] != values[1]:
            yield Figure(key, values[0], values[1], "")


def differing_decisions(
    old: list[DecisionRecord], new: list[DecisionRecord], *, old_finished: bool = True, new_finished: bool = True
) -> list[Difference]:
    """Return the decisions that differ between an old and a new run, the most important first.

    Decisions that an unfinished run lacks are not reported.
    """
    # Equal decisions are no difference, wherever they are in the graph. The other decisions are paired by operator.
    _, removed, added = _pair(_without_counts(old), _without_counts(new), _outcome)
    pairs, removed, added = _pair(removed, added, lambda decision: (decision.kind, decision.nodes))
    # Then by tables: other data sizes may change the ids of operators, and swap the sides of a join.
    pairs_by_table, removed, added = _pair(
        removed, added, lambda decision: (decision.kind, frozenset(decision.tables) or decision.nodes)
    )
    differences = [
        Difference(before.kind, before.sentence, after.sentence)
        for before, after in pairs + pairs_by_table
        if before.is_shown or after.is_shown
    ]
    differences += [
        Difference(before.kind, before.sentence, None) for before in removed if before.is_shown and new_finished
    ]
    differences += [Difference(after.kind, None, after.sentence) for after in added if after.is_shown and old_finished]
    ranks: dict[str, int] = {kind: rank for rank, kind in enumerate(_IMPORTANCE)}
    return sorted(differences, key=lambda difference: ranks.get(difference.kind, len(ranks)))


def _without_counts(decisions: Iterable[DecisionRecord]) -> list[DecisionRecord]:
    """Omit decisions about numbers of tasks or partitions, which differ slightly in every run; retain fallbacks."""
    return [
        decision
        for decision in decisions
        if decision.instead or not (decision.sets_parallelism or decision.kind == DecisionKind.SUBPARTITIONS)
    ]


def _outcome(decision: DecisionRecord) -> Hashable:
    """Return what was done, as a key: the kind, the sentence without its reason and figures, and the fallback."""
    action = _NUMBER.sub("", decision.sentence.partition(", as ")[0])
    return decision.kind, action, _NUMBER.sub("", decision.instead)


def _pair(
    old: Sequence[DecisionRecord], new: Sequence[DecisionRecord], key: Callable[[DecisionRecord], Hashable]
) -> tuple[list[tuple[DecisionRecord, DecisionRecord]], list[DecisionRecord], list[DecisionRecord]]:
    """Return the pairs of decisions with the same key, in order, then the old and the new decisions without a pair."""
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


def growth(old_steps: Sequence[Step], new_steps: Sequence[Step]) -> list[Growth]:
    """Return the sources that grew or shrank, the largest change first."""
    old_rows = rows_of_sources(old_steps)
    names_by_rows: dict[tuple[int, int], list[str]] = {}  # sources with equal numbers mostly read the same table
    for name, rows in rows_of_sources(new_steps).items():
        if name in old_rows:
            names_by_rows.setdefault((old_rows[name], rows), []).append(name)
    sources = [Growth(listed(names, "tables"), *rows) for rows, names in names_by_rows.items()]
    changed = [source for source in sources if source.factor >= GROWTH_FACTOR or source.factor <= 1 / GROWTH_FACTOR]
    return sorted(changed, key=lambda source: abs(source.after - source.before), reverse=True)


def rows_of_sources(steps: Sequence[Step]) -> dict[str, int]:
    """Return the number of rows read from each source; for a source that several steps read, the largest number."""
    rows: dict[str, int] = {}
    for step in steps:
        if step.source and step.rows_in:
            rows[step.source] = max(step.rows_in, rows.get(step.source, 0))
    return rows
