"""What the tasks after a rescale read: the rows of a few upstream tasks each. Pure arithmetic.

As with Flink's pointwise edges, tasks are assigned in order and as evenly as possible.
"""

from __future__ import annotations

from penstock.sizing.packing import spread_by_count
from penstock.sizing.skew_cut import Slice


def rescaled(writers: int, subpartitions: int, readers: int) -> list[tuple[Slice, ...]]:
    """Return what each reader reads.

    Parameters
    ----------
    writers
        The number of upstream tasks.
    subpartitions
        The number of subpartitions that each of them wrote.
    readers
        The number of tasks that read them.
    """
    if readers <= writers:
        return [(Slice((0, subpartitions), span),) for span in spread_by_count(writers, readers)]
    return [
        (Slice(part, (writer, writer + 1)) if part[0] < part[1] else Slice((0, 0)),)
        for writer, (first, last) in enumerate(spread_by_count(readers, writers))
        for part in spread_by_count(subpartitions, last - first)
    ]
