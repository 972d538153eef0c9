"""What the tasks behind a rescale read: each of a few upstream tasks only. Pure arithmetic.

As of Flink's pointwise edges, the tasks of one side are dealt to those of the other in order, as evenly as can be.
"""

from __future__ import annotations

from penstock.sizing.packing import spread_by_count
from penstock.sizing.skew_cut import Slice


def rescaled(writers: int, subpartitions: int, readers: int) -> list[tuple[Slice, ...]]:
    """Return for every reader what it reads.

    Parameters
    ----------
    writers
        How many upstream tasks there are.
    subpartitions
        In how many parts each has dealt out its rows.
    readers
        How many tasks are to read them.
    """
    if readers <= writers:
        return [(Slice((0, subpartitions), span),) for span in spread_by_count(writers, readers)]
    return [
        (Slice(part, (writer, writer + 1)) if part[0] < part[1] else Slice((0, 0)),)
        for writer, (first, last) in enumerate(spread_by_count(readers, writers))
        for part in spread_by_count(subpartitions, last - first)
    ]
