"""Recommends a number of key groups from the size of the state and the cluster's cores."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.state.key_groups import UPPER_BOUND_MAX_PARALLELISM
from penstock.units import show_bytes, show_count

GROUP_BYTES = 128 << 20
"""The most bytes a key group should have: it is loaded whole when its task moves to another executor."""
WAVES = 4
"""The most key groups per core: with more, the tasks of every batch cost more than the distribution gains."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A number of key groups, and why."""

    max_parallelism: int
    reason: str


def recommend(current: int, state_bytes: int, cores: int) -> Recommendation:
    """Return the recommended number of key groups.

    The state needs a number that is large enough for its size and for the cores. The recommendation is the smallest
    multiple or divisor of the current number that is large enough, because these are cheapest to change to.

    Parameters
    ----------
    current
        The current number of key groups.
    state_bytes
        The bytes of the largest operator's state.
    cores
        The number of tasks that can run at the same time.
    """
    by_size = -(-state_bytes // GROUP_BYTES)
    wanted = min(max(by_size, cores, 1), UPPER_BOUND_MAX_PARALLELISM)
    figures = (
        f"{show_bytes(state_bytes)} of state at {show_bytes(GROUP_BYTES)} per group and {show_count(cores, 'core')}"
    )
    if wanted <= current <= max(WAVES * cores, by_size):
        return Recommendation(current, f"{figures} need at least {wanted}; {current} is neither too few nor too many")
    if wanted > current:
        chosen = min(-(-wanted // current) * current, UPPER_BOUND_MAX_PARALLELISM // current * current)
        return Recommendation(chosen, f"{figures} need at least {wanted}; {chosen} is the next multiple of {current}")
    chosen = next(number for number in range(wanted, current + 1) if current % number == 0)
    reason = f"{figures} need only {wanted}, and every batch runs {current} tasks for each operator"
    if chosen == current:
        return Recommendation(current, f"{reason}; no smaller divisor of {current} is large enough")
    return Recommendation(chosen, f"{reason}; {chosen} is the next divisor")
