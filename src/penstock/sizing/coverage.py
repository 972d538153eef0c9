"""Checks that the tasks of a vertex read all rows exactly once. Pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sizing.packing import Range
    from penstock.sizing.skew_cut import Slice


def check_ranges(reader: str, ranges: Sequence[Range], subpartitions: int) -> None:
    """Raise `VerificationError` unless each subpartition is read by exactly one task."""
    read = [span for span in ranges if span[0] < span[1]]
    ends = [0, *(edge for span in read for edge in span), subpartitions]
    if any(end != start for end, start in zip(ends[::2], ends[1::2], strict=True)):
        raise VerificationError.not_read_once(reader, f"subpartitions 0 to {subpartitions} by {ranges}")


def check_rows(reader: str, written: int | None, read: int | None) -> None:
    """Raise `VerificationError` if the numbers of rows written and read differ; None means unknown."""
    if written is not None and read is not None and written != read:
        raise VerificationError.wrong_row_count(reader, written, read)


def check_splits(source: str, wrong: int) -> None:
    """Raise `VerificationError` if `wrong`, the number of rows that are not in exactly one split, is positive."""
    if wrong:
        raise VerificationError.not_read_once(f"the splits of {source}", f"{wrong} of its rows")


def check_slices(
    reader: str,
    slices: Mapping[str, Sequence[tuple[Slice, ...]]],
    sizes: Mapping[str, Sequence[int]],
    mappers: Mapping[str, int],
) -> None:
    """Raise `VerificationError` unless the tasks read each slice once, or each pair of slices of two inputs once.

    `slices` are the slices that each task reads, by edge; all edges have the same number of tasks. `sizes` are the
    bytes per subpartition by edge, equally many for all; empty subpartitions need not be read. `mappers` is the number
    of upstream tasks of each edge.
    """
    edges = list(slices)
    if len(edges) > _PAIR or len({len(sizes[edge]) for edge in edges}) > 1:
        raise VerificationError.not_read_once(reader, f"{len(edges)} inputs by slices")
    counts: dict[int, np.ndarray] = {}
    for tasks in zip(*(slices[edge] for edge in edges), strict=True):
        read = [_cells(task, mappers[edge]) for edge, task in zip(edges, tasks, strict=True)]
        _count(counts, read, [mappers[edge] for edge in edges])
    for index, size in enumerate(sum(np.asarray(sizes[edge]) for edge in edges)):  # type: ignore[arg-type]
        if size and (index not in counts or not (counts[index] == 1).all()):
            raise VerificationError.not_read_once(reader, f"subpartition {index} of {' and '.join(edges)}")


_PAIR = 2
_Cells = dict[int, list[slice]]


def _cells(task: Sequence[Slice], mappers: int) -> _Cells:
    cells: _Cells = {}
    for task_slice in task:
        writers = slice(*(task_slice.mappers or (0, mappers)))
        for index in range(*task_slice.subpartitions):
            cells.setdefault(index, []).append(writers)
    return cells


def _count(counts: dict[int, np.ndarray], read: Sequence[_Cells], mappers: Sequence[int]) -> None:
    """Count how often the rows of each upstream task are read per subpartition; with two inputs, each pair of tasks."""
    for index in set().union(*read):
        grid = counts.setdefault(index, np.zeros(mappers, dtype=np.int64))
        first, *others = (cells.get(index, []) for cells in read)
        for part in first:
            if not others:
                grid[part] += 1
            for other in others[0] if others else ():
                grid[part, other] += 1
