"""What must be true of what a vertex reads, whatever was decided: nothing is left out, nothing is read twice. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sizing.packing import Range
    from penstock.sizing.skew_cut import Slice


def check_ranges(who: str, ranges: Sequence[Range], subpartitions: int) -> None:
    """Check that every subpartition is read by one task.

    Raises
    ------
    VerificationError
        If one is left out, or is read twice.
    """
    read = [span for span in ranges if span[0] < span[1]]
    ends = [0, *(edge for span in read for edge in span), subpartitions]
    if any(end != start for end, start in zip(ends[::2], ends[1::2], strict=True)):
        raise VerificationError.not_tiled(who, f"subpartitions 0 to {subpartitions} by {ranges}")


def check_rows(who: str, there: int | None, found: int | None) -> None:
    """Check that as many rows came through as there are; None where they were not counted.

    Raises
    ------
    VerificationError
        If they are not as many.
    """
    if there is not None and found is not None and there != found:
        raise VerificationError.rows_lost(who, there, found)


def check_splits(source: str, wrong: int) -> None:
    """Check that no row of a source is in no split, or in several.

    Raises
    ------
    VerificationError
        If there are such rows.
    """
    if wrong:
        raise VerificationError.not_tiled(f"the splits of {source}", f"{wrong} of its rows")


def check_slices(
    who: str,
    slices: Mapping[str, Sequence[tuple[Slice, ...]]],
    sizes: Mapping[str, Sequence[int]],
    mappers: Mapping[str, int],
) -> None:
    """Check that what was written is read once by inputs that are cut alike, each pair of two inputs' pieces once.

    Parameters
    ----------
    who
        The vertex, for the error.
    slices
        For every edge what each task reads of it, bit by bit; all have as many tasks.
    sizes
        For every edge the bytes of each of its subpartitions, as many for all; what is empty need not be read.
    mappers
        For every edge how many upstream tasks wrote it.

    Raises
    ------
    VerificationError
        If a piece, or a pair of pieces, is left out or is read twice.
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
    """Return which upstream tasks' rows of which subpartitions a task reads."""
    found: _Cells = {}
    for one in task:
        part = slice(*(one.mappers or (0, mappers)))
        for index in range(*one.subpartitions):
            found.setdefault(index, []).append(part)
    return found


def _count(counts: dict[int, np.ndarray], read: Sequence[_Cells], mappers: Sequence[int]) -> None:
    """Count how often each upstream task's rows of a subpartition (of two inputs: each pair of them) are read."""
    for index in set().union(*read):
        grid = counts.setdefault(index, np.zeros(mappers, dtype=np.int64))
        first, *others = (cells.get(index, []) for cells in read)
        for part in first:
            if not others:
                grid[part] += 1
            for other in others[0] if others else ():
                grid[part, other] += 1
