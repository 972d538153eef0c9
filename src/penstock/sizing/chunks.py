"""Number of chunks of an exchange whose consumers take the next chunk whenever they are free."""

from __future__ import annotations

_PER_CONSUMER = 64
"""Chunks per consumer. At the end, all consumers wait for the last chunk, so smaller chunks shorten the wait for a slow
consumer."""
_TOTAL = 2000
"""Upper limit of all chunks. A writing task has a block per chunk, and beyond this Spark tracks only average sizes."""


def chunk_count(consumers: int) -> int:
    """Return the number of chunks for a number of consumers, at least four per consumer.

    >>> chunk_count(4), chunk_count(1000)
    (256, 4000)
    """
    return max(min(_PER_CONSUMER * consumers, _TOTAL), 4 * consumers)
