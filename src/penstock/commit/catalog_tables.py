"""What a job has ready for a table of Spark's catalogue: its files, and what the catalogue is told of them."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit.added_files import PreparedFiles
from penstock.commit.folders import PreparedFolders
from penstock.commit.names import check_relative
from penstock.commit.paths import place_of
from penstock.commit.prepared import Prepared, prepared_of
from penstock.errors import CommitError, SinkError
from penstock.spark.filesystem import Folder
from penstock.spark.session_catalog import (
    drop_table,
    find_table,
    is_marked,
    lasting_catalog,
    unmark_table,
    update_statistics,
)
from penstock.spark.table_partitions import add_partitions, forget_partitions
from penstock.spark.table_writes import create_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit.prepared import Access
    from penstock.spark.session_catalog import CatalogTable

log = logging.getLogger("penstock.commit")

_PART = r"(`([^`]|``)+`|\w+)"
_NAME = re.compile(rf"{_PART}(\.{_PART}){{0,2}}")


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
    location
        Where that is, as the user or the catalogue says it: the files' own path leads through no symbolic link.
    partitions
        The folders of the partitions that were written, which the catalogue has to know.
    new_partitions
        Those of them that it did not know before.
    gone_partitions
        Those that it knew before, and that an overwrite has left without rows.
    catalog
        By which a catalogue that outlives the driver is known; empty of one that does not.
    created
        When a table was made that is there, in milliseconds; 0 if nobody knows.
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
    location: str = ""
    catalog: str = ""
    created: int = 0

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

    @property
    def hidden(self) -> tuple[str, ...]:
        """As the record of the files says."""
        return self._files.hidden

    def is_at(self, target: Folder) -> bool:
        """As the record of the files says."""
        return self._files.is_at(target)

    def check_names(self) -> None:
        """Refuse files that are not a folder's, a statement that does not make the table, and another location."""
        files = self._files
        if not isinstance(files, PreparedFiles | PreparedFolders):
            raise ValueError(f"the files of a table are of kind {files.kind!r}")  # noqa: TRY004 - as of any bad name
        files.check_names()
        if _NAME.fullmatch(self.table) is None:
            raise ValueError(f"{self.table!r} is not the name of a table")
        if self.statement and not self.statement.startswith(f"CREATE TABLE {self.table} "):
            raise ValueError(f"the statement does not make table {self.table}")
        if self.location and place_of(self.location) != place_of(files.path):
            raise ValueError(f"table {self.table} does not lie at {files.path!r}")
        check_relative((*self.partitions, *self.new_partitions, *self.gone_partitions))

    def ready(self, access: Access) -> None:
        """As the record of the files says."""
        self._files.ready(access)

    @property
    def _mark(self) -> str:
        """By which a new table is known as this job's: no other has the name of its hidden folder."""
        return str(self.files["staging"]).rpartition("/")[2]

    def commit(self, access: Access) -> None:
        """Put the files into their places, then tell the catalogue.

        Raises
        ------
        SinkError
            If somebody else has made, dropped or moved the table since the job began.
        """
        self._check_table(access)
        self._files.commit(access)
        self._check_table(access)  # to move files takes minutes where they are copied
        self._tell(access)

    def complete(self, access: Access) -> None:
        """As `commit`; files that were removed since stay away, and so does a table."""
        if self.statement:
            self._check_table(access)
        self._files.complete(access)
        self._tell(access)

    def check(self, access: Access) -> None:
        """Refuse a session that would not find the table, though it is there."""
        if self.catalog and lasting_catalog(access.bridge) != self.catalog:
            raise CommitError.other_catalog(self.table, self.catalog, lasting_catalog(access.bridge))

    def _check_table(self, access: Access) -> None:
        found = find_table(access.bridge, self.table)
        if self.statement:
            if found is not None and not is_marked(access.bridge, self.table, self._mark):
                raise SinkError.exists(self.table, "table")
        elif found is None or not self._is_here(access, found):
            raise SinkError.table_is_gone(self.table, None if found is None else found.location)

    def _is_here(self, access: Access, table: CatalogTable) -> bool:
        """Whether the files are those of a table, and not of one that had its name before, or has it since."""
        is_other = self.created and table.created != self.created
        return not is_other and self._files.is_at(Folder(access.bridge, table.location).resolved)

    def _tell(self, access: Access) -> None:
        bridge, found = access.bridge, find_table(access.bridge, self.table)
        if found is None and self.statement:
            location = self.location or str(self._files.folder)  # journals of before do not tell it
            create_table(bridge, self.statement, self.schema, location, self._mark, external=self.external)
        elif found is None or not self._is_here(access, found):
            where = self._files.folder
            log.warning("the catalogue of this session has no table %s at %s; its files are there", self.table, where)
            return
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
        found = find_table(access.bridge, self.table)
        if found is not None and self._is_here(access, found):
            self._restore_partitions(access)
            update_statistics(access.bridge, self.table)

    def _restore_partitions(self, access: Access) -> None:
        """Let the catalogue forget new partitions, and know again those that it had to forget.

        What lies there now decides: others may have written rows to the same partitions meanwhile, or removed some.
        """
        bridge, root = access.bridge, Folder(access.bridge, str(self._files.folder))
        empty = [name for name in self.new_partitions if not root.child(name).exists()]
        back = [name for name in self.gone_partitions if root.child(name).exists()]
        forget_partitions(bridge, self.table, empty)
        # Another job may have moved files into one of them just then, and have told the catalogue before it forgot.
        add_partitions(bridge, self.table, [*back, *(name for name in empty if root.child(name).exists())])

    def finish(self, access: Access) -> None:
        """As the record of the files says; a new table is like any other then."""
        self._files.finish(access)
        if self.statement:
            unmark_table(access.bridge, self.table, self._mark)
