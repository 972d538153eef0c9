"""What the tasks after a rescale read: each reads the rows of a few upstream tasks. Pure arithmetic.

`pointwise` says which tasks are connected. The readers of a writer share its subpartitions, in order.
"""

from __future__ import annotations

from penstock.sizing.packing import spread_by_count
from penstock.sizing.pointwise import readers_of, writers_of
from penstock.sizing.skew_cut import Slice


def rescaled(writers: int, subpartitions: int, readers: int) -> list[tuple[Slice, ...]]:
    """Return the slices that each reader reads of the subpartitions that each writer wrote."""
    if readers <= writers:
        sources = (writers_of(reader, writers, readers) for reader in range(readers))
        return [(Slice((0, subpartitions), (source.start, source.stop)),) for source in sources]
    return [
        (Slice(part, (writer, writer + 1)) if part[0] < part[1] else Slice((0, 0)),)
        for writer in range(writers)
        for part in spread_by_count(subpartitions, len(readers_of(writer, writers, readers)))
    ]
