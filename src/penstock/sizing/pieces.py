"""In how many pieces rows are written that consumers take whenever they are free."""

from __future__ import annotations

_EACH = 64
"""Pieces for each consumer. At the end, the others wait for one that has just taken its last piece: a consumer that is
ten times slower then holds a tenth of what an even share would be longer than the others, not all of it."""
_MOST = 2000
"""All together. A task that writes has a block for each piece, and of more blocks Spark knows only the average size."""


def piece_count(consumers: int) -> int:
    """Return how many pieces there are for a number of consumers: at least four for each.

    Examples
    --------
    >>> piece_count(4)
    256
    >>> piece_count(1000)
    4000
    """
    return max(min(_EACH * consumers, _MOST), 4 * consumers)
