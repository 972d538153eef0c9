"""Recommendation of a number of key groups (state partitions) from the size of the state and the cluster's cores."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.units import show_bytes, show_count
from penstock.state.key_groups import UPPER_BOUND_MAX_PARALLELISM

MAX_GROUP_BYTES = 128 << 20
"""Largest recommended size of a key group in bytes: a whole group is loaded when its task moves to another executor."""
MAX_GROUPS_PER_CORE = 4
"""Largest recommended number of key groups per core: more tasks cost more time than their better balance saves."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A number of key groups, and the reason for it."""

    max_parallelism: int
    reason: str


def recommend(current: int, state_bytes: int, cores: int) -> Recommendation:
    """Return the current number of key groups if it is suitable, else its smallest sufficient multiple or divisor.

    Multiples and divisors are the cheapest changes, because whole groups are split or merged. `state_bytes` is
    the size in bytes of the largest operator's state, `cores` the number of tasks that run at the same time.
    """
    min_by_size = -(-state_bytes // MAX_GROUP_BYTES)
    minimum = min(max(min_by_size, cores, 1), UPPER_BOUND_MAX_PARALLELISM)
    size = f"{show_bytes(state_bytes)} of state at {show_bytes(MAX_GROUP_BYTES)} per group"
    figures = f"{size} and {show_count(cores, 'core')}"
    if minimum <= current <= max(MAX_GROUPS_PER_CORE * cores, min_by_size):
        return Recommendation(current, f"{figures} need at least {minimum}; {current} is neither too few nor too many")
    if minimum > current:
        chosen = min(-(-minimum // current) * current, UPPER_BOUND_MAX_PARALLELISM // current * current)
        return Recommendation(chosen, f"{figures} need at least {minimum}; {chosen} is the next multiple of {current}")
    chosen = next(number for number in range(minimum, current + 1) if current % number == 0)
    reason = f"{figures} need only {minimum}, and every batch runs {current} tasks for each operator"
    if chosen == current:
        return Recommendation(current, f"{reason}; no smaller divisor of {current} is large enough")
    return Recommendation(chosen, f"{reason}; {chosen} is the next divisor")
