"""Barrier that keeps a query from starting while a rescale is partly published.

Since 4.2 Spark refuses to start a query whose newest batch has another number of key groups and is not done. Older
releases would run that batch on the wrong key groups. For them, the log of offsets gets another entry that they cannot
parse: they refuse to start, and cite its first line.
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
    """The entry in the log of offsets that older releases of Spark cannot parse.

    Parameters
    ----------
    is_needed
        Whether the release of Spark needs a barrier. If not, the methods do nothing.
    """

    def __init__(self, checkpoint: Folder, batch: int, *, is_needed: bool) -> None:
        self._file = checkpoint.child(f"offsets/{batch + 1}")
        self._is_needed = is_needed

    def create(self) -> None:
        """Write the entry, unless the query has that batch already."""
        if self._is_needed:
            self._file.write(TEXT)

    def exists(self) -> bool:
        """Whether the entry exists."""
        return self._is_needed and self._file.exists() and self._file.read() == TEXT

    def remove(self) -> None:
        """Remove the entry if it exists."""
        if self.exists():
            self._file.delete()
