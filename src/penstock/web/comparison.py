"""Comparison of two runs of a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.history.decisions import recorded_decisions
from penstock.history.summary import summary_of
from penstock.web import formatting
from penstock.web.decision_differences import Difference, differing_decisions
from penstock.web.sources import growth
from penstock.web.steps import steps_of
from penstock.web.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.history.record import JobRecord
    from penstock.web.sources import Growth
    from penstock.web.steps import Step

_IDLE = "Seconds in which no task ran"
_MIN_DIFFERENCE = 0.2
"""Seconds by which a step must differ to be reported."""
_MAX_SENTENCES = 3


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
class Comparison:
    """The differences between an earlier and a later run.

    Parameters
    ----------
    figures
        Totals of both runs.
    steps
        The steps of both runs, paired.
    decisions
        The decisions that differ.
    options
        The options that differ, with both values.
    sources
        The sources that grew or shrank.
    is_running
        Whether the later run is still running.
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
            tuple(_paired(old, new)),
            tuple(
                differing_decisions(
                    recorded_decisions(before), recorded_decisions(after), old_ended=old_ended, new_ended=new_ended
                )
            ),
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
    first, second = summary_of(before), summary_of(after)
    totals = before.seconds(now), after.seconds(now)
    yield _figure("Seconds", *totals, formatting.seconds)
    idle = Timing.of(old, totals[0]).idle_seconds, Timing.of(new, totals[1]).idle_seconds
    yield _figure(_IDLE, *idle, formatting.seconds)
    yield _figure("Tasks", first.tasks, second.tasks, formatting.count)
    yield _figure("Rows read", sum(map(_rows_read, old)), sum(map(_rows_read, new)), formatting.rows)
    yield _figure("Bytes read", sum(map(_bytes_read, old)), sum(map(_bytes_read, new)), formatting.size)
    yield _figure("Bytes spilled to disk", sum(map(_spilled, old)), sum(map(_spilled, new)), formatting.size)
    yield _figure("Bytes not shuffled", first.not_shuffled, second.not_shuffled, formatting.size)
    yield _figure("Wrong estimates", first.missed, second.missed, formatting.count)


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
