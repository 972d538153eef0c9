"""Differences between the decisions of two runs of a job."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from penstock.recorded_decisions import RecordedDecision

_FIGURE = re.compile(
    r"(?<![\w.-])\d[\d.,]*(?:\s?%|\s?(?:B|[KMGT]iB)\b|\s(?:core|file|group|partition|row|step|table|task)s?\b)?"
)
"""A number with its unit; digits within a table name do not match."""
_IMPORTANCE = (DecisionKind.BROADCAST, DecisionKind.JOIN_ALGORITHM, DecisionKind.JOIN_ORDER, DecisionKind.SKEW)
"""The kinds that change the run time most often, the most frequent first."""


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


def differing_decisions(
    old: Iterable[RecordedDecision], new: Iterable[RecordedDecision], *, old_ended: bool = True, new_ended: bool = True
) -> list[Difference]:
    """Return the decisions that differ between two runs, the most important first.

    Parameters
    ----------
    old, new
        The decisions of both runs.
    old_ended, new_ended
        Whether a run finished; decisions that an unfinished run lacks are not reported.
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


def _without_counts(decisions: Iterable[RecordedDecision]) -> list[RecordedDecision]:
    """Leave out decisions about numbers of tasks and partitions, which differ a little in every run."""
    return [
        decision
        for decision in decisions
        if decision.instead or not (decision.sets_parallelism or decision.kind == DecisionKind.SUBPARTITIONS)
    ]


def _outcome(decision: RecordedDecision) -> Hashable:
    """Return what was done: the sentence up to its reason, without figures."""
    action = _FIGURE.sub("", decision.sentence.partition(", as ")[0])
    return decision.kind, action, _FIGURE.sub("", decision.instead)


def _paired(
    old: Sequence[RecordedDecision], new: Sequence[RecordedDecision], key: Callable[[RecordedDecision], Hashable]
) -> tuple[list[tuple[RecordedDecision, RecordedDecision]], list[RecordedDecision], list[RecordedDecision]]:
    """Return the pairs of decisions with the same key, in order, and the decisions without a partner: old, new."""
    unmatched: dict[Hashable, deque[RecordedDecision]] = {}
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
