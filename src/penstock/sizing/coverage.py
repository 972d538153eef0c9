"""Checks that tasks read all rows exactly once. The parameter `reader` is a vertex or input, for error messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import VerificationError

if TYPE_CHECKING:
    from penstock.sizing.packing import Range
    from penstock.sizing.skew_cut import Slice


def check_ranges(reader: str, ranges: Sequence[Range], subpartitions: int) -> None:
    """Raise `VerificationError` unless ranges, in their order, cover each subpartition (or upstream task) once."""
    non_empty = [span for span in ranges if span[0] < span[1]]
    borders = [0, *(border for span in non_empty for border in span), subpartitions]
    if any(end != start for end, start in zip(borders[::2], borders[1::2], strict=True)):
        indices = f"the indices 0 to {subpartitions - 1}"
        raise VerificationError.of(f"{reader} would not read {indices} by {ranges} exactly once")


def check_rows(reader: str, written: int | None, read: int | None) -> None:
    """Raise `VerificationError` if the numbers of rows written and read differ; None means unknown."""
    if written is not None and read is not None and written != read:
        raise VerificationError.of(f"{reader} must have {written} rows and has {read}")


def check_splits(source: str, wrong_rows: int) -> None:
    """Raise `VerificationError` if any row is not in exactly one split; `wrong_rows` is the number of such rows."""
    if wrong_rows:
        raise VerificationError.of(f"the splits of {source} would not read {wrong_rows} of its rows exactly once")


def check_slices(
    reader: str,
    slices: Mapping[str, Sequence[tuple[Slice, ...]]],
    sizes: Mapping[str, Sequence[int]],
    mappers: Mapping[str, int],
) -> None:
    """Raise `VerificationError` unless tasks read each row of a single input, or each pair of rows of two inputs, once.

    A pair has a row of each input, in the same subpartition. `slices` has what each task reads, by edge; all edges have
    the same number of tasks. `sizes` are the bytes per subpartition by edge; all edges have the same number of
    subpartitions, and empty subpartitions need not be read. `mappers` is the number of upstream tasks by edge.
    """
    edges = list(slices)
    if len(edges) > _MAX_INPUTS or len({len(sizes[edge]) for edge in edges}) > 1:
        raise VerificationError.of(f"{reader} would not read {len(edges)} inputs by slices exactly once")
    counts: dict[int, np.ndarray] = {}
    for tasks in zip(*(slices[edge] for edge in edges), strict=True):
        read = [_cells(task, mappers[edge]) for edge, task in zip(edges, tasks, strict=True)]
        _count_reads(counts, read, [mappers[edge] for edge in edges])
    for index, size in enumerate(sum(np.asarray(sizes[edge]) for edge in edges)):  # type: ignore[arg-type]
        if size and (index not in counts or not (counts[index] == 1).all()):
            inputs = " and ".join(edges)
            raise VerificationError.of(f"{reader} would not read subpartition {index} of {inputs} exactly once")


_MAX_INPUTS = 2
_Cells = dict[int, list[slice]]
"""The ranges of upstream tasks whose rows a task reads, by subpartition."""


def _cells(task: Sequence[Slice], mappers: int) -> _Cells:
    cells: _Cells = {}
    for task_slice in task:
        writers = slice(*(task_slice.mappers or (0, mappers)))
        for index in range(*task_slice.subpartitions):
            cells.setdefault(index, []).append(writers)
    return cells


def _count_reads(counts: dict[int, np.ndarray], read: Sequence[_Cells], mappers: Sequence[int]) -> None:
    """Count how often the rows of each upstream task (or pair of tasks, with two inputs) are read, by subpartition."""
    for index in set().union(*read):
        grid = counts.setdefault(index, np.zeros(mappers, dtype=np.int64))
        first_input, *second_input = (cells.get(index, []) for cells in read)
        for writers in first_input:
            if not second_input:
                grid[writers] += 1
            for other_writers in second_input[0] if second_input else ():
                grid[writers, other_writers] += 1
