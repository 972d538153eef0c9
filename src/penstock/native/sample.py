"""What a step gives of a few row groups, computed in the driver: whether DuckDB pays is measured, not guessed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.native.errors import NotNativeError
from penstock.native.files import row_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.native.files import FileRange
    from penstock.native.worker import NativeStep


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of some row groups, and how many of them a step has left.

    Parameters
    ----------
    read, left
        Rows.
    task
        Rows that a task reads in all.
    """

    read: int
    left: int
    task: int

    @property
    def share(self) -> float:
        """The part of its rows that a step leaves; 1 where none was seen."""
        return self.left / self.read if self.read else 1.0

    @property
    def of_a_task(self) -> float:
        """About how many rows a task leaves."""
        return self.share * self.task


def sampled(step: NativeStep, ranges: Sequence[FileRange]) -> Sample:
    """Run a step over one row group of each range, and count.

    Raises
    ------
    NotNativeError
        If the files cannot be read here, or not by DuckDB.
    """
    import pyarrow.parquet as pq  # the driver may not have it: that was asked before

    read, chosen, all_rows = 0, [], []
    for file in ranges:
        try:
            with pq.ParquetFile(file.local) as parquet:
                groups = row_groups(parquet.metadata, file)
        except OSError as error:
            raise NotNativeError(str(error)) from error
        if groups:
            group = groups[len(groups) // 2]
            chosen.append(replace(file, start=group.middle, length=1))
            read += group.rows
            all_rows.append(sum(one.rows for one in groups))
    counted = step.counting()
    left = sum(batch.column(0)[0].as_py() for batch in counted.rows(chosen))
    return Sample(read, left, sum(all_rows) // max(len(all_rows), 1))
