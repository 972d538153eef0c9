"""What was decided differently in two runs of one job."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from penstock.told import ToldDecision

_FIGURE = re.compile(
    r"(?<![\w.-])\d[\d.,]*(?:\s?%|\s?(?:B|[KMGT]iB)\b|\s(?:core|file|group|partition|row|step|table|task)s?\b)?"
)
"""A figure with what it counts; digits in the name of a table are none."""
_TELLING = (DecisionKind.BROADCAST, DecisionKind.JOIN_ALGORITHM, DecisionKind.JOIN_ORDER, DecisionKind.SKEW)
"""What most often makes a run faster or slower, first."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that came out differently; None where a run has none such."""

    kind: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.after is None:
            return f"no longer: {self.before}"
        if self.before is None:
            return f"now: {self.after}"
        place, colon, _ = self.after.partition(": ")
        before = self.before.partition(", as ")[0].removeprefix(f"{place}{colon}")
        return f"now: {self.after}; before: {before}"


def choices(
    old: Iterable[ToldDecision], new: Iterable[ToldDecision], *, old_ended: bool = True, new_ended: bool = True
) -> list[Difference]:
    """Return what was decided differently, most telling first.

    Parameters
    ----------
    old, new
        What was decided in both runs.
    old_ended, new_ended
        Whether a run got so far that it decided all: else what it has not decided tells nothing.
    """
    # What both have is the same wherever it is in their graphs; of the rest, what is about one place belongs together.
    _, left, right = _paired(_without_numbers(old), _without_numbers(new), _chosen)
    found, left, right = _paired(left, right, lambda one: (one.kind, one.nodes))
    # The graph of another size of data may have other numbers, and a join of the same tables the other side first.
    more, left, right = _paired(left, right, lambda one: (one.kind, frozenset(one.tables) or one.nodes))
    found += more
    told = [
        Difference(one.kind, one.sentence, other.sentence) for one, other in found if one.is_shown or other.is_shown
    ]
    told += [Difference(one.kind, one.sentence, None) for one in left if one.is_shown and new_ended]
    told += [Difference(one.kind, None, one.sentence) for one in right if one.is_shown and old_ended]
    return sorted(told, key=lambda one: _TELLING.index(one.kind) if one.kind in _TELLING else len(_TELLING))


def _without_numbers(decisions: Iterable[ToldDecision]) -> list[ToldDecision]:
    """Leave out how many tasks and partitions there are: that differs a little in each run."""
    return [one for one in decisions if one.instead or not (one.counts_tasks or one.kind == DecisionKind.SUBPARTITIONS)]


def _chosen(one: ToldDecision) -> Hashable:
    """Return what was done: the sentence up to its reasons, without figures."""
    what = _FIGURE.sub("", one.sentence.partition(", as ")[0])
    return one.kind, what, _FIGURE.sub("", one.instead)


def _paired(
    old: Sequence[ToldDecision], new: Sequence[ToldDecision], key: Callable[[ToldDecision], Hashable]
) -> tuple[list[tuple[ToldDecision, ToldDecision]], list[ToldDecision], list[ToldDecision]]:
    """Return the pairs that have the same key, in order, and what is left of both."""
    waiting: dict[Hashable, deque[ToldDecision]] = {}
    for one in old:
        waiting.setdefault(key(one), deque()).append(one)
    pairs, left = [], []
    for one in new:
        same = waiting.get(key(one))
        if same:
            pairs.append((same.popleft(), one))
        else:
            left.append(one)
    return pairs, [one for same in waiting.values() for one in same], left
