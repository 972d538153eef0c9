"""Key groups: the parts that keyed state is cut into, and which operator subtask owns which.

A key group of a Spark query is a state partition. Its number is Spark's hash of the grouping key modulo the max
parallelism, which is the number of key groups. The ranges of subtasks are those of Apache Flink's
``KeyGroupRangeAssignment``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import StateError
from penstock.hashing import hash_row

if TYPE_CHECKING:
    from collections.abc import Sequence

UPPER_BOUND_MAX_PARALLELISM = 1 << 15
DEFAULT_LOWER_BOUND_MAX_PARALLELISM = 1 << 7


def key_group(values: Sequence[Any], types: Sequence[str], max_parallelism: int) -> int:
    """Return the key group of a grouping key.

    Parameters
    ----------
    values
        The columns of the key, as PySpark gives them.
    types
        The names Spark prints for their types.
    max_parallelism
        The number of key groups.
    """
    return hash_row(values, types) % max_parallelism


def operator_index(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return group * parallelism // max_parallelism


def key_group_range(index: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups that a subtask owns; never empty where parallelism is at most max parallelism."""
    start = (index * max_parallelism + parallelism - 1) // parallelism
    return range(start, ((index + 1) * max_parallelism - 1) // parallelism + 1)


def default_max_parallelism(parallelism: int) -> int:
    """Return the max parallelism of a query that sets none: half as much again as its parallelism, as a power of two.

    At least 128, at most 32768.
    """
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 0).bit_length()
    return min(max(power, DEFAULT_LOWER_BOUND_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def check_max_parallelism(value: int) -> int:
    """Return a max parallelism that is within bounds.

    Raises
    ------
    StateError
        If it is not.
    """
    if not 1 <= value <= UPPER_BOUND_MAX_PARALLELISM:
        raise StateError.bad_max_parallelism(value, UPPER_BOUND_MAX_PARALLELISM)
    return value
