"""Recommendation of a number of key groups from the size of the state and the cores of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.units import show_bytes, show_count
from penstock.state.key_groups import UPPER_BOUND_MAX_PARALLELISM

GROUP_BYTES = 128 << 20
"""Largest recommended size of a key group in bytes: it is loaded whole when its task moves to another executor."""
WAVES = 4
"""Largest recommended number of key groups per core: more cost more in tasks than they gain in distribution."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A number of key groups, and the reason for it."""

    max_parallelism: int
    reason: str


def recommend(current: int, state_bytes: int, cores: int) -> Recommendation:
    """Return the smallest multiple or divisor of the current number that is large enough: the cheapest change.

    `state_bytes` are the bytes of the largest operator's state; `cores` are the tasks that run at the same time.
    """
    by_size = -(-state_bytes // GROUP_BYTES)
    minimum = min(max(by_size, cores, 1), UPPER_BOUND_MAX_PARALLELISM)
    figures = (
        f"{show_bytes(state_bytes)} of state at {show_bytes(GROUP_BYTES)} per group and {show_count(cores, 'core')}"
    )
    if minimum <= current <= max(WAVES * cores, by_size):
        return Recommendation(current, f"{figures} need at least {minimum}; {current} is neither too few nor too many")
    if minimum > current:
        chosen = min(-(-minimum // current) * current, UPPER_BOUND_MAX_PARALLELISM // current * current)
        return Recommendation(chosen, f"{figures} need at least {minimum}; {chosen} is the next multiple of {current}")
    chosen = next(number for number in range(minimum, current + 1) if current % number == 0)
    reason = f"{figures} need only {minimum}, and every batch runs {current} tasks for each operator"
    if chosen == current:
        return Recommendation(current, f"{reason}; no smaller divisor of {current} is large enough")
    return Recommendation(chosen, f"{reason}; {chosen} is the next divisor")
