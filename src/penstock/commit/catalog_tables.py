"""What a job has ready for a table of Spark's catalogue: its files, and what the catalogue is told of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit.prepared import Prepared, prepared_of
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder
from penstock.spark.session_catalog import drop_table, find_table, is_marked, unmark_table, update_statistics
from penstock.spark.table_partitions import add_partitions, forget_partitions
from penstock.spark.table_writes import create_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")


@dataclass(frozen=True)
class PreparedTable(Prepared):
    """Files of a table, which the catalogue hears of once they are in their places.

    Parameters
    ----------
    table
        The table's name, quoted.
    files
        The record of the files, as JSON knows it.
    statement, schema
        How a new table is made, and the JSON of its columns; empty of a table that is there.
    external
        Whether the user has said where a new table lies.
    partitions
        The folders of the partitions that were written, which the catalogue has to know.
    new_partitions
        Those of them that it did not know before.
    gone_partitions
        Those that it knew before, and that an overwrite has left without rows.
    """

    kind: ClassVar[str] = "catalog table"
    is_reversible: ClassVar[bool] = True

    table: str
    files: Mapping[str, Any] = field(default_factory=dict)
    statement: str = ""
    schema: str = ""
    external: bool = False
    partitions: tuple[str, ...] = ()
    new_partitions: tuple[str, ...] = ()
    gone_partitions: tuple[str, ...] = ()

    @property
    def _files(self) -> Prepared:
        return prepared_of(self.files)

    @property
    def target(self) -> str:
        """The table."""
        return self.table

    @property
    def is_atomic(self) -> bool:
        """Whether the catalogue has nothing to hear, and the files appear in one step."""
        return not (self.statement or self.partitions or self.gone_partitions) and self._files.is_atomic

    @property
    def folder(self) -> str | None:
        """The folder of the files."""
        return self._files.folder

    @property
    def replaced(self) -> tuple[str, ...]:
        """As the record of the files says."""
        return self._files.replaced

    @property
    def added(self) -> tuple[str, ...]:
        """As the record of the files says."""
        return self._files.added

    def is_at(self, target: Folder) -> bool:
        """As the record of the files says."""
        return self._files.is_at(target)

    def ready(self, access: Access) -> None:
        """As the record of the files says."""
        self._files.ready(access)

    @property
    def _mark(self) -> str:
        """By which a new table is known as this job's: no other has the name of its hidden folder."""
        return str(self.files["staging"]).rpartition("/")[2]

    def commit(self, access: Access) -> None:
        """Put the files into their places, then tell the catalogue."""
        self._check_name(access)
        self._files.commit(access)
        self._tell(access)

    def complete(self, access: Access) -> None:
        """As `commit`; files that were removed since stay away."""
        self._check_name(access)
        self._files.complete(access)
        self._tell(access)

    def _check_name(self, access: Access) -> None:
        """Refuse a new table whose name somebody else has taken since."""
        taken = self.statement and find_table(access.bridge, self.table) is not None
        if taken and not is_marked(access.bridge, self.table, self._mark):
            raise SinkError.exists(self.table, "table")

    def _tell(self, access: Access) -> None:
        bridge = access.bridge
        if find_table(bridge, self.table) is None:
            location = self._files.folder
            if not self.statement or location is None:
                log.warning("the catalogue of this session has no table %s; its files are in their places", self.table)
                return
            create_table(bridge, self.statement, self.schema, location, self._mark, external=self.external)
        forget_partitions(bridge, self.table, self.gone_partitions)
        add_partitions(bridge, self.table, self.partitions)
        update_statistics(bridge, self.table)

    def is_committed(self, access: Access) -> bool:
        """Whether the files are in their places, and the catalogue knows the table."""
        known = not self.statement or is_marked(access.bridge, self.table, self._mark)
        return known and self._files.is_committed(access)

    def undo(self, access: Access) -> None:
        """Take a new table out of the catalogue, and the files out of their places.

        A table of that name which is not known as this job's stays: another program has made it.
        """
        if self.statement:
            if is_marked(access.bridge, self.table, self._mark):
                drop_table(access.bridge, self.table)
            self._files.undo(access)
            return
        self._files.undo(access)
        if find_table(access.bridge, self.table) is not None:
            self._restore_partitions(access)

    def _restore_partitions(self, access: Access) -> None:
        """Let the catalogue forget new partitions, and know again those that it had to forget.

        What lies there now decides: others may have written rows to the same partitions meanwhile, or removed some.
        """
        bridge, root = access.bridge, Folder(access.bridge, str(self._files.folder))
        empty = [name for name in self.new_partitions if not root.child(name).exists()]
        back = [name for name in self.gone_partitions if root.child(name).exists()]
        forget_partitions(bridge, self.table, empty)
        add_partitions(bridge, self.table, back)

    def finish(self, access: Access) -> None:
        """As the record of the files says; a new table is like any other then."""
        self._files.finish(access)
        if self.statement:
            unmark_table(access.bridge, self.table, self._mark)
