"""Dividing the rows of a window's hot keys by their order, as plain arithmetic.

One task reads, sorts and computes the largest subpartition; say that takes one unit of time for each byte. In pieces,
the rows of all hot subpartitions are sampled, written by ranges of the order, summed up piece by piece, and only then
read, sorted and computed.
"""

from __future__ import annotations

WORTH_IT = 1.5
"""One task must take so many times as long: what is foreseen here is not exact."""

COST = 2
"""What it costs to compute rows in pieces, if it costs 1 to compute them in one task.

Measured: 1.8 times the CPU seconds, see docs/explanation/skewed-aggregates.md; and the stages wait for each other.
"""

MOST_OF_IT = 2 / 3
"""A piece with more than this part of the largest subpartition is not worth to be summed up and computed by itself."""


def times_faster(largest: int, hot: int, total: int, cores: int, tasks: int) -> float:
    """Return how many times as long a window takes with its hot rows in one task each as in pieces.

    Parameters
    ----------
    largest
        The bytes of the largest subpartition.
    hot
        The bytes of all subpartitions that are divided.
    total
        All bytes.
    cores
        The tasks that run at the same time.
    tasks
        The tasks that wrote the largest subpartition: there cannot be more pieces.

    Examples
    --------
    >>> times_faster(largest=800, hot=800, total=1000, cores=16, tasks=100)
    7.111111111111111
    >>> times_faster(largest=800, hot=800, total=1000, cores=2, tasks=100)
    0.8888888888888888
    """
    together = max(largest, total / cores)
    in_pieces = COST * hot / min(cores, tasks) + (total - hot) / cores
    return together / in_pieces
