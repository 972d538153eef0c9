"""Which max parallelism suits a state: arithmetic over its size and the cluster's cores."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.state.key_groups import UPPER_BOUND_MAX_PARALLELISM
from penstock.units import show_bytes, show_count

GROUP_BYTES = 128 << 20
"""What a key group should hold at most: it is loaded whole when its task moves to another executor."""
WAVES = 4
"""More key groups than this for each core cost every batch more in tasks than they spread."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A number of key groups, and why."""

    max_parallelism: int
    reason: str


def recommend(current: int, state_bytes: int, cores: int) -> Recommendation:
    """Return the max parallelism to take.

    The wanted number is the larger of what the state's size and what the cores ask for. Of the multiples and divisors
    of the current number, which cost least to go to, the smallest that is not below it is taken.

    Parameters
    ----------
    current
        The max parallelism there is.
    state_bytes
        The bytes of the state of the largest operator.
    cores
        The tasks that can run at once.
    """
    by_size = -(-state_bytes // GROUP_BYTES)
    wanted = min(max(by_size, cores, 1), UPPER_BOUND_MAX_PARALLELISM)
    figures = f"{show_bytes(state_bytes)} of state at {show_bytes(GROUP_BYTES)} a group and {show_count(cores, 'core')}"
    if wanted <= current <= max(WAVES * cores, by_size):
        return Recommendation(
            current, f"{figures} ask for at least {wanted}; {current} is neither too few nor too many"
        )
    if wanted > current:
        chosen = min(-(-wanted // current) * current, UPPER_BOUND_MAX_PARALLELISM // current * current)
        return Recommendation(
            chosen, f"{figures} ask for at least {wanted}; {chosen} is the next multiple of {current}"
        )
    chosen = next(number for number in range(wanted, current + 1) if current % number == 0)
    reason = f"{figures} ask for {wanted}, and every batch runs {current} tasks for each operator"
    if chosen == current:
        return Recommendation(current, f"{reason}; {current} has no smaller divisor that is enough")
    return Recommendation(chosen, f"{reason}; {chosen} is the next divisor")
