"""Keeps a query from starting while a rescale of it is half in place.

Since 4.2 Spark refuses to start a query whose newest batch has another number of key groups and is not done. Older
releases would run that batch, on key groups that are of the other number. For them the log of offsets gets one more
entry that they cannot read: they refuse it whole, and cite its first line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder

TEXT = (
    b"Penstock has put a rescale of this query half in place: finish it with the same `penstock state rescale`, "
    b"or undo it with --abort"
)


class Barrier:
    """The entry that cannot be read.

    Parameters
    ----------
    checkpoint
        The folder of the query's checkpoint.
    batch
        The batch that the rescale becomes.
    needed
        Whether there is to be one at all.
    """

    def __init__(self, checkpoint: Folder, batch: int, *, needed: bool) -> None:
        self._file = checkpoint.child(f"offsets/{batch + 1}")
        self._needed = needed

    def put_up(self) -> None:
        """Put it up, unless the query has that batch already."""
        if self._needed:
            self._file.write(TEXT)

    def stands(self) -> bool:
        """Whether it is there."""
        return self._needed and self._file.exists() and self._file.read() == TEXT

    def take_down(self) -> None:
        """Take it down, if it is there."""
        if self.stands():
            self._file.delete()
