"""The sizes of the subpartitions that a step wrote, as bars."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.history.lines import subpartitions_per_bar
from penstock.units import show_bytes
from penstock.web.reasons import SKEWED

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIN_MARKED = 1 << 20
"""The least bytes of a subpartition that can delay a task."""
_MIN_HEIGHT = 0.5
"""The least height of a bar, in percent."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A subpartition, or the largest of several neighbours: its label, bytes, and height in percent of the highest."""

    label: str
    size: int
    height: float
    is_skewed: bool


def subpartition_bars(sizes: Sequence[int], count: int) -> list[Bar]:
    """Return a bar for each recorded size.

    Small subpartitions are never marked as skewed, as a task reads many of them.

    Parameters
    ----------
    sizes
        The bytes of each subpartition; if there are many, the largest of each group of neighbours.
    count
        The number of subpartitions.
    """
    highest = max(sizes, default=0) or 1
    typical = statistics.median(sizes) if sizes else 0.0
    width = subpartitions_per_bar(count)
    return [
        Bar(
            _label(number * width, min((number + 1) * width, count) - 1, size),
            size,
            max(100 * size / highest, _MIN_HEIGHT),
            len(sizes) > 2 and size >= _MIN_MARKED and size > SKEWED * typical,
        )
        for number, size in enumerate(sizes)
    ]


def _label(first: int, last: int, size: int) -> str:
    if first == last:
        return f"subpartition {first}: {show_bytes(size)}"
    return f"subpartitions {first} to {last}: the largest {show_bytes(size)}"
