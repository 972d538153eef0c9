"""How a job spent its time: its critical path, and the intervals in which no task ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.web.steps import merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.web.steps import Interval, Step

_SOON = 0.3
"""A step that starts within this number of seconds after its last input waited only for this input."""
_SHORT = 0.05
"""Shorter gaps, in seconds, are not shown, as Spark records the times of tasks in milliseconds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How a job spent its time.

    Parameters
    ----------
    total
        The duration of the job in seconds.
    critical
        The ids of the steps on the critical path, first to last.
    idle
        The intervals in which no task ran.
    """

    total: float
    critical: tuple[str, ...]
    idle: tuple[Interval, ...]

    @classmethod
    def of(cls, steps: Sequence[Step], total: float) -> Timing:
        """Compute the timing of a job with these steps."""
        return cls(total, critical_path(steps), tuple(idle(steps, total)))

    @property
    def idle_seconds(self) -> float:
        """The total duration of the idle intervals."""
        return sum(end - start for start, end in self.idle)


def critical_path(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the ids of the steps on the critical path, first to last.

    A step waits for the last of its inputs. A step without inputs, or that starts long after them, was held back: it
    waited for the step that ended last before it started.
    """
    ran = {step.id: (step.ran, step) for step in steps if step.ran is not None}
    if not ran:
        return ()
    chain = [max(ran.values(), key=lambda timed: timed[0][1])[1]]
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
    """Return the intervals in which no task of any step ran."""
    gaps, at = [], 0.0
    for start, end in merged(span for step in steps for span in step.busy):
        if start - at >= _SHORT:
            gaps.append((at, min(start, total)))
        at = max(at, end)
    if total - at >= _SHORT:
        gaps.append((at, total))
    return gaps
