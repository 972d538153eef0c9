"""Commit records of tables of Spark's catalog: their files, and the changes to the catalog entry."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit.added_files import PreparedFiles
from penstock.commit.folders import PreparedFolders
from penstock.commit.names import check_relative_paths, location_of
from penstock.commit.prepared import Prepared, prepared_from_dict
from penstock.errors import CommitError, SinkError
from penstock.spark.io.filesystem import HadoopPath
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
    from penstock.commit.prepared import Access
    from penstock.spark.io.session_catalog import CatalogTable

log = logging.getLogger("penstock.commit")

_PART = r"(`([^`]|``)+`|\w+)"
_TABLE_NAME = re.compile(rf"{_PART}(\.{_PART}){{0,2}}")


@dataclass(frozen=True)
class PreparedTable(Prepared):
    """Files of a table, and the update of its catalog entry after the files are in the table's folder.

    `table` is the quoted name. `files` is the record of the files as a JSON object (`Prepared.as_dict`). `statement` is
    the CREATE TABLE statement of a new table, and `schema` the JSON of its columns; both are empty for an existing
    table. `external` says whether the user has set the location of a new table. `location` is the table's folder as the
    user or the catalog spells it; the path in `files` has no symbolic links.

    `partitions` are the folders of the written partitions, which the commit adds to the catalog. `new_partitions` are
    those that the catalog did not list before. `emptied_partitions` (`gone_partitions` in journals) have no rows any
    more, so the commit removes them from the catalog. `catalog` identifies a persistent catalog; empty for an in-memory
    catalog. `created` is when an existing table was created, in milliseconds since the epoch; 0 if unknown.
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
    emptied_partitions: tuple[str, ...] = field(default=(), metadata={"key": "gone_partitions"})
    location: str = ""
    catalog: str = ""
    created: int = 0

    @property
    def _files_record(self) -> Prepared:
        return prepared_from_dict(self.files)

    @property
    def target(self) -> str:
        """The name of the table."""
        return self.table

    @property
    def is_atomic(self) -> bool:
        """Whether the catalog entry stays unchanged, and the files appear in a single step."""
        return not (self.statement or self.partitions or self.emptied_partitions) and self._files_record.is_atomic

    @property
    def folder(self) -> str | None:
        """The folder of the files."""
        return self._files_record.folder

    @property
    def exclusive_paths(self) -> tuple[str, ...]:
        """The paths of the files that other jobs must not write to until the commit ends."""
        return self._files_record.exclusive_paths

    @property
    def extended_folders(self) -> tuple[str, ...]:
        """The folders that get additional files."""
        return self._files_record.extended_folders

    @property
    def hidden_folders(self) -> tuple[str, ...]:
        """The hidden folders of the new and the replaced files."""
        return self._files_record.hidden_folders

    def is_at(self, target: HadoopPath) -> bool:
        """Whether a folder is the table's folder."""
        return self._files_record.is_at(target)

    def check_names(self) -> None:
        """Reject invalid names and paths, `files` of another kind, and a statement or location of another table."""
        files = self._files_record
        if not isinstance(files, PreparedFiles | PreparedFolders):
            # Checks of names raise ValueError throughout.
            raise ValueError(f"the files of a table are of kind {files.kind!r}")  # noqa: TRY004
        files.check_names()
        if _TABLE_NAME.fullmatch(self.table) is None:
            raise ValueError(f"{self.table!r} is not a table name")
        if self.statement and not self.statement.startswith(f"CREATE TABLE {self.table} "):
            raise ValueError(f"the statement does not create table {self.table}")
        if self.location and location_of(self.location) != location_of(files.path):
            raise ValueError(f"table {self.table} is not located at {files.path!r}")
        check_relative_paths((*self.partitions, *self.new_partitions, *self.emptied_partitions))

    def make_ready(self, access: Access) -> None:
        """Prepare the files for their commit, without making rows visible."""
        self._files_record.make_ready(access)

    @property
    def _mark(self) -> str:
        """The table property that identifies a new table of this job: the unique name of its staging folder."""
        return str(self.files["staging"]).rpartition("/")[2]

    def commit(self, access: Access) -> None:
        """Move the files into the table's folder, then update the catalog.

        Raise `SinkError` if another program has created, dropped or moved the table since the job began.
        """
        self._check_table(access)
        self._files_record.commit(access)
        self._check_table(access)  # again, as the table may change during a move by copying, which takes minutes
        self._update_catalog(access)

    def complete(self, access: Access) -> None:
        """Like `commit`, but accept that files, or an existing table, were removed after an earlier attempt."""
        if self.statement:
            self._check_table(access)
        self._files_record.complete(access)
        self._update_catalog(access)

    def check(self, access: Access) -> None:
        """Raise `CommitError` if the catalog of this session, which may lack the table, is not that of the job."""
        actual = persistent_catalog_id(access.bridge) if self.catalog else ""
        if actual != self.catalog:
            raise CommitError(
                f"the interrupted commit to table {self.table} cannot be recovered in this session",
                cause=f"its catalog is {self.catalog}, and the catalog of this session is {actual or 'in memory'}",
                hint="start Spark as the job did: with --conf spark.sql.catalogImplementation=hive, and its metastore",
            )

    def _check_table(self, access: Access) -> None:
        table = find_table(access.bridge, self.table)
        if self.statement:
            if table is not None and not is_marked(access.bridge, self.table, self._mark):
                raise SinkError.already_exists(self.table, "table")
        elif table is None or not self._is_same_table(access, table):
            raise SinkError.table_is_gone(self.table, None if table is None else table.location)

    def _is_same_table(self, access: Access, table: CatalogTable) -> bool:
        """Whether the files were written for this table, not for an earlier or later table of its name."""
        was_recreated = self.created and table.created != self.created
        return not was_recreated and self._files_record.is_at(HadoopPath(access.bridge, table.location).resolved)

    def _update_catalog(self, access: Access) -> None:
        bridge, table = access.bridge, find_table(access.bridge, self.table)
        if table is None and self.statement:
            location = self.location or str(self._files_record.folder)  # journals of older releases have no location
            create_table(bridge, self.statement, self.schema, location, self._mark, external=self.external)
        elif table is None or not self._is_same_table(access, table):
            folder = self._files_record.folder
            log.warning("the catalog of this session has no table %s in %s, which has its files", self.table, folder)
            return
        unregister_partitions(bridge, self.table, self.emptied_partitions)
        add_partitions(bridge, self.table, self.partitions)
        update_statistics(bridge, self.table)

    def is_committed(self, access: Access) -> bool:
        """Whether the files are in the table's folder, and the catalog has the table."""
        has_entry = not self.statement or is_marked(access.bridge, self.table, self._mark)
        return has_entry and self._files_record.is_committed(access)

    def undo(self, access: Access) -> None:
        """Restore the table's folder and the partitions in the catalog; remove a new table from the catalog.

        A new table without the mark of this job stays: another program has created it.
        """
        if self.statement:
            if is_marked(access.bridge, self.table, self._mark):
                drop_table(access.bridge, self.table)
            self._files_record.undo(access)
            return
        self._files_record.undo(access)
        table = find_table(access.bridge, self.table)
        if table is not None and self._is_same_table(access, table):
            self._restore_partitions(access)
            update_statistics(access.bridge, self.table)

    def _restore_partitions(self, access: Access) -> None:
        """Remove new partitions that have no folder from the catalog; add emptied partitions that have a folder.

        The folders that exist now are decisive, as other jobs may have written to partitions, or removed some.
        """
        bridge, root = access.bridge, HadoopPath(access.bridge, str(self._files_record.folder))
        empty = [name for name in self.new_partitions if not root.child(name).exists()]
        restored = [name for name in self.emptied_partitions if root.child(name).exists()]
        unregister_partitions(bridge, self.table, empty)
        # Another job may have filled a partition and added it to the catalog between its check and its removal above.
        add_partitions(bridge, self.table, [*restored, *(name for name in empty if root.child(name).exists())])

    def finish(self, access: Access) -> None:
        """Remove what only `undo` needs, and the mark of a new table."""
        self._files_record.finish(access)
        if self.statement:
            unmark_table(access.bridge, self.table, self._mark)
