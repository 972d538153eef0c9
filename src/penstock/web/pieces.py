"""The pieces of the rows that a step wrote, as bars side by side."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.history.lines import pieces_in_bar
from penstock.units import show_bytes
from penstock.web.reasons import SKEWED

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORTH_MARKING = 1 << 20
"""Bytes of a piece that may hold a task up."""
_LEAST = 0.5
"""The least height of a bar, in percent."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece, or neighbours of which the largest counts: in words, its bytes, its height in percent of the highest."""

    told: str
    size: int
    height: float
    is_skewed: bool


def bars_of(sizes: Sequence[int], count: int) -> list[Bar]:
    """Return a bar for each size that was recorded.

    Small pieces are never marked: whatever their sizes are, one task reads many of them.

    Parameters
    ----------
    sizes
        The bytes of each piece; of many, the largest of each run of neighbours.
    count
        How many pieces there are.
    """
    highest = max(sizes, default=0) or 1
    typical = statistics.median(sizes) if sizes else 0.0
    width = pieces_in_bar(count)
    return [
        Bar(
            _told(number * width, min((number + 1) * width, count) - 1, size),
            size,
            max(100 * size / highest, _LEAST),
            len(sizes) > 2 and size >= _WORTH_MARKING and size > SKEWED * typical,
        )
        for number, size in enumerate(sizes)
    ]


def _told(first: int, last: int, size: int) -> str:
    if first == last:
        return f"piece {first}: {show_bytes(size)}"
    return f"pieces {first} to {last}: the largest {show_bytes(size)}"
