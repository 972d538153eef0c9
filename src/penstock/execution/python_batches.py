"""Lets Spark give rows to Python functions without measuring batches, where no batch can reach the limit of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.python_batches import LIMIT, NO_LIMIT, arrow_width, batch_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode
    from penstock.spark.python_batches import BatchLimits

_ROUNDING = 128
"""Bytes that Arrow may add to each of a column's two buffers, by rounding their sizes up."""


def batch_settings(bridge: Bridge, functions: Iterable[LogicalNode]) -> dict[str, str]:
    """Return the settings for a session that runs some operators with Python functions."""
    widths = [arrow_width(one) for one in functions]
    if not widths:
        return {}
    limits = batch_limits(bridge)
    return {LIMIT: str(limits.bytes if reaches_limit(widths, limits) else NO_LIMIT)}


def reaches_limit(widths: Sequence[int | None], limits: BatchLimits) -> bool:
    """Whether a batch may reach its limit of bytes before it has all of its rows.

    Parameters
    ----------
    widths
        The bytes of a row, the most for each function; None if there is no bound.
    limits
        What bounds a batch.

    Examples
    --------
    >>> from penstock.spark.python_batches import BatchLimits
    >>> reaches_limit([18], BatchLimits(rows=10_000, bytes=64 << 20))
    False
    >>> reaches_limit([None], BatchLimits(rows=10_000, bytes=64 << 20))
    True
    """
    if limits.rows <= 0:
        return True
    return any(one is None or one * (limits.rows + _ROUNDING) >= limits.bytes for one in widths)
