"""Prepared records of tables of Spark's catalogue: their files, and the changes to the catalogue entry."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit.added_files import PreparedFiles
from penstock.commit.folders import PreparedFolders
from penstock.commit.names import check_relative, location_of
from penstock.commit.prepared import Prepared, prepared_from_dict
from penstock.errors import CommitError, SinkError
from penstock.spark.io.filesystem import Folder
from penstock.spark.io.session_catalog import (
    drop_table,
    find_table,
    is_marked,
    persistent_catalog_id,
    unmark_table,
    update_statistics,
)
from penstock.spark.io.table_partitions import add_partitions, unregister_partitions
from penstock.spark.io.table_writes import create_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit.prepared import Access
    from penstock.spark.io.session_catalog import CatalogTable

log = logging.getLogger("penstock.commit")

_PART = r"(`([^`]|``)+`|\w+)"
_NAME = re.compile(rf"{_PART}(\.{_PART}){{0,2}}")


@dataclass(frozen=True)
class PreparedTable(Prepared):
    """Files of a table, and the update of its catalogue entry once they are in the table's folder.

    `table` is the quoted name. `files` is the record of the files as a JSON object (`Prepared.as_dict`). `statement` is
    the CREATE TABLE statement of a new table, and `schema` the JSON of its columns; both are empty for an existing
    table. `external` says whether the user has set the location of a new table. `location` is spelled as by the user or
    the catalogue; the path in `files` has no symbolic links.

    `partitions` are the folders of the partitions that were written, which the catalogue must list; it did not list
    `new_partitions` before. It listed `gone_partitions`, which an overwrite has left without rows. `catalog` is the
    identity of a catalogue that outlives the driver; empty for an in-memory catalogue. `created` is when an existing
    table was created, in milliseconds since the epoch; 0 if unknown.
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
        return prepared_from_dict(self.files)

    @property
    def target(self) -> str:
        """The name of the table."""
        return self.table

    @property
    def is_atomic(self) -> bool:
        """Whether the catalogue entry does not change, and the files appear in a single step."""
        return not (self.statement or self.partitions or self.gone_partitions) and self._files.is_atomic

    @property
    def folder(self) -> str | None:
        """The folder of the files."""
        return self._files.folder

    @property
    def replaced(self) -> tuple[str, ...]:
        """The replaced paths of the files."""
        return self._files.replaced

    @property
    def added(self) -> tuple[str, ...]:
        """The folders that get files."""
        return self._files.added

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden folders of the files."""
        return self._files.hidden

    def is_at(self, target: Folder) -> bool:
        """Whether a folder is the table's folder."""
        return self._files.is_at(target)

    def check_names(self) -> None:
        """Reject records that are not files or folders, a statement for another table, and another location."""
        files = self._files
        if not isinstance(files, PreparedFiles | PreparedFolders):
            # Checks of names raise ValueError throughout.
            raise ValueError(f"the files of a table are of kind {files.kind!r}")  # noqa: TRY004
        files.check_names()
        if _NAME.fullmatch(self.table) is None:
            raise ValueError(f"{self.table!r} is not a table name")
        if self.statement and not self.statement.startswith(f"CREATE TABLE {self.table} "):
            raise ValueError(f"the statement does not create table {self.table}")
        if self.location and location_of(self.location) != location_of(files.path):
            raise ValueError(f"table {self.table} is not located at {files.path!r}")
        check_relative((*self.partitions, *self.new_partitions, *self.gone_partitions))

    def ready(self, access: Access) -> None:
        """Prepare the files."""
        self._files.ready(access)

    @property
    def _mark(self) -> str:
        """The table property that identifies a new table of this job: the unique name of its staging folder."""
        return str(self.files["staging"]).rpartition("/")[2]

    def commit(self, access: Access) -> None:
        """Move the files into the table's folder, then update the catalogue.

        Raise `SinkError` if another program has created, dropped or moved the table since the job began.
        """
        self._check_table(access)
        self._files.commit(access)
        self._check_table(access)  # moving files takes minutes where they are copied
        self._update_catalog(access)

    def complete(self, access: Access) -> None:
        """Do as `commit`, but do not restore files or a table that were removed since."""
        if self.statement:
            self._check_table(access)
        self._files.complete(access)
        self._update_catalog(access)

    def check(self, access: Access) -> None:
        """Raise if the session uses another catalogue than the job did, so that it does not see the table."""
        if self.catalog and persistent_catalog_id(access.bridge) != self.catalog:
            raise CommitError.other_catalog(self.table, self.catalog, persistent_catalog_id(access.bridge))

    def _check_table(self, access: Access) -> None:
        table = find_table(access.bridge, self.table)
        if self.statement:
            if table is not None and not is_marked(access.bridge, self.table, self._mark):
                raise SinkError.exists(self.table, "table")
        elif table is None or not self._is_same_table(access, table):
            raise SinkError.table_is_gone(self.table, None if table is None else table.location)

    def _is_same_table(self, access: Access, table: CatalogTable) -> bool:
        """Whether the files were written for this table, not for an earlier or later table of its name."""
        is_other = self.created and table.created != self.created
        return not is_other and self._files.is_at(Folder(access.bridge, table.location).resolved)

    def _update_catalog(self, access: Access) -> None:
        bridge, table = access.bridge, find_table(access.bridge, self.table)
        if table is None and self.statement:
            location = self.location or str(self._files.folder)  # journals of older releases have no location
            create_table(bridge, self.statement, self.schema, location, self._mark, external=self.external)
        elif table is None or not self._is_same_table(access, table):
            folder = self._files.folder
            log.warning("the catalogue of this session has no table %s at %s; its files are there", self.table, folder)
            return
        unregister_partitions(bridge, self.table, self.gone_partitions)
        add_partitions(bridge, self.table, self.partitions)
        update_statistics(bridge, self.table)

    def is_committed(self, access: Access) -> bool:
        """Whether the files are in the table's folder, and the catalogue has the table."""
        has_entry = not self.statement or is_marked(access.bridge, self.table, self._mark)
        return has_entry and self._files.is_committed(access)

    def undo(self, access: Access) -> None:
        """Remove a new table from the catalogue, and the files from the table's folder.

        A table of the same name without this job's mark stays: another program has created it.
        """
        if self.statement:
            if is_marked(access.bridge, self.table, self._mark):
                drop_table(access.bridge, self.table)
            self._files.undo(access)
            return
        self._files.undo(access)
        table = find_table(access.bridge, self.table)
        if table is not None and self._is_same_table(access, table):
            self._restore_partitions(access)
            update_statistics(access.bridge, self.table)

    def _restore_partitions(self, access: Access) -> None:
        """Remove new partitions from the catalogue, and add the removed ones again.

        The folders that exist now decide: other jobs may have written to the same partitions, or removed some.
        """
        bridge, root = access.bridge, Folder(access.bridge, str(self._files.folder))
        empty = [name for name in self.new_partitions if not root.child(name).exists()]
        restored = [name for name in self.gone_partitions if root.child(name).exists()]
        unregister_partitions(bridge, self.table, empty)
        # Another job may have filled a partition and added it to the catalogue between the check and its removal.
        add_partitions(bridge, self.table, [*restored, *(name for name in empty if root.child(name).exists())])

    def finish(self, access: Access) -> None:
        """Remove what was needed to undo, and the mark of a new table."""
        self._files.finish(access)
        if self.statement:
            unmark_table(access.bridge, self.table, self._mark)
