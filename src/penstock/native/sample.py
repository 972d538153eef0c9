"""What a leaf gives of a few row groups, computed in the driver: whether DuckDB pays is measured, not guessed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.native.worker import NotNativeError, row_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.native.worker import FileRange, NativeLeaf


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of some row groups, and how many of them a leaf has left.

    Parameters
    ----------
    read, left
        Rows.
    """

    read: int
    left: int

    @property
    def share(self) -> float:
        """The part of its rows that a leaf leaves; 1 where none was seen."""
        return self.left / self.read if self.read else 1.0


def sampled(leaf: NativeLeaf, ranges: Sequence[FileRange]) -> Sample:
    """Run a leaf over one row group of each range, and count.

    Raises
    ------
    NotNativeError
        If the files cannot be read here, or not by DuckDB.
    """
    import pyarrow.parquet as pq  # the driver may not have it: that was asked before

    read, chosen = 0, []
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
    counted = leaf.counting()
    return Sample(read, sum(batch.column(0)[0].as_py() for batch in counted.rows(chosen)))
