"""Where the time of a job went: its longest chain of steps, and when nothing ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.web.steps import merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.web.steps import Interval, Step

_SOON = 0.3
"""A step that begins so many seconds after its last input has waited for this input, and for nothing else."""
_SHORT = 0.05
"""Gaps of fewer seconds are not shown; Spark's clock of tasks has milliseconds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time went.

    Parameters
    ----------
    total
        Seconds of the job.
    critical
        The steps that the end waited for, each for the one before, by their ids.
    idle
        When no task ran.
    """

    total: float
    critical: tuple[str, ...]
    idle: tuple[Interval, ...]

    @classmethod
    def of(cls, steps: Sequence[Step], total: float) -> Timing:
        """Return where the time of a job with these steps went."""
        return cls(total, critical_path(steps), tuple(idle(steps, total)))

    @property
    def idle_seconds(self) -> float:
        """How long no task ran."""
        return sum(end - start for start, end in self.idle)


def critical_path(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the chain of steps that the end of the job waited for, first to last.

    A step waits for the last of its inputs. One without inputs, or that begins long after them, was held back: then it
    waited for whatever ended last before it began.
    """
    ran = {step.id: (step.ran, step) for step in steps if step.ran is not None}
    if not ran:
        return ()
    chain = [max(ran.values(), key=lambda one: one[0][1])[1]]
    while (before := _waited_for(chain[-1], [step for _, step in ran.values()])) is not None:
        chain.append(before)
    return tuple(step.id for step in reversed(chain))


def _waited_for(step: Step, others: Sequence[Step]) -> Step | None:
    began = _begin(step)
    earlier = [other for other in others if other.id != step.id and _end(other) <= began and _begin(other) < began]
    inputs = [other for other in earlier if other.id in step.inputs]
    last = max(inputs, key=_end, default=None)
    if last is not None and began - _end(last) <= _SOON:
        return last
    return max(earlier, key=_end, default=None)


def _begin(step: Step) -> float:
    return 0.0 if step.ran is None else step.ran[0]


def _end(step: Step) -> float:
    return 0.0 if step.ran is None else step.ran[1]


def idle(steps: Sequence[Step], total: float) -> list[Interval]:
    """Return when no task of any step ran."""
    found, at = [], 0.0
    for start, end in merged(span for step in steps for span in step.busy):
        if start - at >= _SHORT:
            found.append((at, min(start, total)))
        at = max(at, end)
    if total - at >= _SHORT:
        found.append((at, total))
    return found
