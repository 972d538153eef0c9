"""What a step reads, and gives of a few row groups, found out in the driver: whether DuckDB pays is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.native.footers import footer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.native.files import FileRange
    from penstock.native.worker import NativeStep


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of the row groups of a step.

    Parameters
    ----------
    chosen
        Where they lie, one for each task that was looked at.
    rows
        How many rows they have.
    task
        How many rows a task reads in all, about.
    """

    chosen: tuple[FileRange, ...]
    rows: int
    task: int

    def share(self, step: NativeStep) -> float:
        """Run a step over the row groups; return the part of their rows that it gives.

        Raises
        ------
        NotNativeError
            If DuckDB cannot read the files.
        """
        counted = step.counting()
        given = sum(batch.column(0)[0].as_py() for batch in counted.rows(self.chosen))
        return given / self.rows if self.rows else 0.0


def sampled(ranges: Sequence[FileRange], task_bytes: Sequence[int]) -> Sample:
    """Choose a row group of each of some ranges, each the first one of another task.

    Parameters
    ----------
    ranges
        The ranges.
    task_bytes
        The bytes of all ranges of that task.

    Raises
    ------
    NotNativeError
        If the files cannot be read here.
    """
    chosen, rows, of_tasks = [], 0, []
    for file, size in zip(ranges, task_bytes, strict=True):
        groups = footer_of(file.local, file.modified, file.size).groups_in(file)
        if groups:
            group = groups[len(groups) // 2]
            chosen.append(replace(file, start=group.start, length=1))
            rows += group.rows
        of_tasks.append(sum(one.rows for one in groups) * size // max(file.length, 1))
    return Sample(tuple(chosen), rows, sum(of_tasks) // max(len(of_tasks), 1))
