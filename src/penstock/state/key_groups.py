"""Key groups: the partitions of keyed state.

A key group of a Spark query is a state partition, processed by its own task. The key group of a key is Spark's hash of
the grouping key modulo the max parallelism, which is the number of key groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.base.hashing import hash_row
from penstock.errors import StateError

UPPER_BOUND_MAX_PARALLELISM = 1 << 15
DEFAULT_LOWER_BOUND_MAX_PARALLELISM = 1 << 7


def key_group(values: Sequence[Any], types: Sequence[str], max_parallelism: int) -> int:
    """Return the key group of a grouping key.

    `values` are the columns of the key, as PySpark returns them, and `types` the names of their types, as Spark prints
    them. `max_parallelism` is the number of key groups.

    >>> key_group(["ann", 7], ["string", "bigint"], 128)
    43
    """
    return hash_row(values, types) % max_parallelism


def default_max_parallelism(parallelism: int) -> int:
    """Return 1.5 times the parallelism, rounded up to a power of two; at least 128, at most 32768.

    >>> default_max_parallelism(200)
    512
    """
    minimum = parallelism + parallelism // 2
    power = 1 << max(minimum - 1, 0).bit_length()
    return min(max(power, DEFAULT_LOWER_BOUND_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def check_max_parallelism(value: object) -> int:
    """Return the max parallelism; raise `StateError` if it is not an integer between 1 and 32768."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if not 1 <= number <= UPPER_BOUND_MAX_PARALLELISM:
        hint = f"use a whole number between 1 and {UPPER_BOUND_MAX_PARALLELISM:,}"
        raise StateError(f"max parallelism is {value!r}", hint=hint)
    return number
