"""Checks that the tasks of a vertex read everything exactly once, whatever was decided. Pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sizing.packing import Range
    from penstock.sizing.skew_cut import Slice


def check_ranges(who: str, ranges: Sequence[Range], subpartitions: int) -> None:
    """Check that exactly one task reads each subpartition.

    Raises
    ------
    VerificationError
        If a subpartition is missing, or is read twice.
    """
    read = [span for span in ranges if span[0] < span[1]]
    ends = [0, *(edge for span in read for edge in span), subpartitions]
    if any(end != start for end, start in zip(ends[::2], ends[1::2], strict=True)):
        raise VerificationError.not_tiled(who, f"subpartitions 0 to {subpartitions} by {ranges}")


def check_rows(who: str, written: int | None, read: int | None) -> None:
    """Check that as many rows were read as were written; None means that they were not counted.

    Raises
    ------
    VerificationError
        If the counts differ.
    """
    if written is not None and read is not None and written != read:
        raise VerificationError.rows_lost(who, written, read)


def check_splits(source: str, wrong: int) -> None:
    """Check that each row of a source is in exactly one split.

    Raises
    ------
    VerificationError
        If `wrong` rows are not.
    """
    if wrong:
        raise VerificationError.not_tiled(f"the splits of {source}", f"{wrong} of its rows")


def check_slices(
    who: str,
    slices: Mapping[str, Sequence[tuple[Slice, ...]]],
    sizes: Mapping[str, Sequence[int]],
    mappers: Mapping[str, int],
) -> None:
    """Check that the tasks read each piece of one input once, or each pair of pieces of two inputs once.

    Parameters
    ----------
    who
        The vertex, for the error.
    slices
        What each task reads of each edge; all edges have the same number of tasks.
    sizes
        The bytes per subpartition of each edge, equally many for all; empty subpartitions need not be read.
    mappers
        The number of upstream tasks of each edge.

    Raises
    ------
    VerificationError
        If a piece, or a pair of pieces, is missing or is read twice.
    """
    edges = list(slices)
    if len(edges) > _PAIR or len({len(sizes[edge]) for edge in edges}) > 1:
        raise VerificationError.not_tiled(who, f"{len(edges)} inputs by slices")
    counts: dict[int, np.ndarray] = {}
    for tasks in zip(*(slices[edge] for edge in edges), strict=True):
        read = [_cells(task, mappers[edge]) for edge, task in zip(edges, tasks, strict=True)]
        _count(counts, read, [mappers[edge] for edge in edges])
    for index, size in enumerate(sum(np.asarray(sizes[edge]) for edge in edges)):  # type: ignore[arg-type]
        if size and (index not in counts or not (counts[index] == 1).all()):
            raise VerificationError.not_tiled(who, f"subpartition {index} of {' and '.join(edges)}")


_PAIR = 2
_Cells = dict[int, list[slice]]


def _cells(task: Sequence[Slice], mappers: int) -> _Cells:
    """Return the upstream tasks that a task reads from, by subpartition."""
    cells: _Cells = {}
    for piece in task:
        part = slice(*(piece.mappers or (0, mappers)))
        for index in range(*piece.subpartitions):
            cells.setdefault(index, []).append(part)
    return cells


def _count(counts: dict[int, np.ndarray], read: Sequence[_Cells], mappers: Sequence[int]) -> None:
    """Count how often each upstream task's rows of a subpartition are read; with two inputs, each pair of them."""
    for index in set().union(*read):
        grid = counts.setdefault(index, np.zeros(mappers, dtype=np.int64))
        first, *others = (cells.get(index, []) for cells in read)
        for part in first:
            if not others:
                grid[part] += 1
            for other in others[0] if others else ():
                grid[part, other] += 1
