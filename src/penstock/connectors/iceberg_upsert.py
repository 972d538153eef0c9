"""An upsert into an Iceberg table: files with a replaced row are written anew, and one snapshot names the new ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.iceberg_checks import check_same_columns, check_upsert, live_files, snapshot_of
from penstock.connectors.iceberg_commit import (
    PAUSES,
    PreparedIceberg,
    files_in_snapshot,
    table_of,
    tried_once,
)
from penstock.connectors.iceberg_files import IcebergFile, condition_of, files_of
from penstock.connectors.iceberg_partitions import IcebergPartitions
from penstock.connectors.prepared_upsert import PreparedUpsert, Upsert
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.upsert import balanced
from penstock.spark.files import EVERY_ROW, read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.table import Table
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.commit import Access


@dataclass(frozen=True, slots=True)
class IcebergUpsert(Upsert[IcebergFile]):
    """What an upsert needs to be worked out."""

    def place_of(self, file: IcebergFile) -> str:
        """Return where Spark finds a file."""
        return file.path

    def read(self, files: Iterable[IcebergFile]) -> DataFrame:
        """Return all rows of files, which have all columns in them."""
        return read_parquet(self.spark, self.schema, [one.path for one in files], **EVERY_ROW)

    def write(self, table: Table | None, partitions: IcebergPartitions | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write what comes into the table; return the files that it replaces."""
        if table is not None:
            check_same_columns(table, self.schema)
        rows = self.new_rows()
        conditions = self.key.check(rows)
        files = []
        if table is not None and conditions is not None:
            files = live_files(table, condition_of(conditions, self.schema))
        rows, replaced = self.merged(files, rows)
        if partitions is not None:
            rows = partitions.with_folders(rows)
        staged.write(balanced(rows, staged.partition_by))
        return replaced


@dataclass(frozen=True)
class PreparedIcebergUpsert(PreparedUpsert["Table"], PreparedIceberg):
    """Files that take the place of others.

    Parameters
    ----------
    snapshot
        The snapshot that was looked at, None where there was none.
    """

    kind: ClassVar[str] = "iceberg-upsert"
    pauses: ClassVar[tuple[float, ...]] = PAUSES

    snapshot: int | None = None

    def commit(self, access: Access) -> None:
        """Add a snapshot after the one that was looked at; look again if there is a newer one."""
        for useless in self.commit_what_fits(access)[:-1]:
            useless.remove_attempt(access)

    def look(self, access: Access) -> Table | None:
        """Return the table as it is now."""
        return table_of(self.connect(access), self.table)

    def is_in(self, table: Table | None) -> bool:
        """As an append is."""
        return PreparedIceberg.is_in(self, table)

    def fitting(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Return what fits a table as it is now; one with other columns or partitions is refused."""
        if table is not None:
            self._check_partitions(table)
            check_same_columns(table, self._columns())
        return super().fitting(access, table)

    def has_seen(self, table: Table | None) -> bool:
        """Whether the current snapshot is the one that was looked at."""
        return self.snapshot == (None if table is None else snapshot_of(table))

    def still_fits(self, access: Access, table: Table) -> bool:
        """Whether a later snapshot may get the files as they are; one whose rows cannot be replaced is refused."""
        check_upsert(table)
        if self.snapshot is None or table.snapshot_by_id(self.snapshot) is None:
            return False
        upsert = self._upsert(access)
        before = files_of(table, self.snapshot, condition_of((), upsert.schema))
        return upsert.still_fits(self.removed, before, live_files(table))

    def worked_out_again(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Write the files that fit a snapshot."""
        snapshot = None if table is None else snapshot_of(table)
        partitions = None if table is None else IcebergPartitions.of(table)
        staged = StagedFiles(access.bridge.spark, f"{self.root}/data", [] if partitions is None else partitions.folders)
        removed = self._upsert(access).write(table, partitions, staged)
        files, texts = files_in_snapshot(staged)
        return replace(self, files=files, partitions=texts, staging=staged.folder, removed=removed, snapshot=snapshot)

    def _upsert(self, access: Access) -> IcebergUpsert:
        return IcebergUpsert(access.bridge.spark, self.table_key, self.rows, self._columns())

    def _columns(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.schema))

    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Add the snapshot after the table's current one."""
        if table is None:
            self._make_table(self.connect(access))
            return
        replaced = {one.path: one for one in live_files(table)} if self.removed else {}
        transaction = tried_once(table).transaction()
        if not self.removed:
            self._fill(transaction, table, has_rows=self.snapshot is not None)
        else:
            self._name_columns(transaction, table)
            with transaction.update_snapshot(snapshot_properties=self._told()).overwrite() as change:
                for path in self.removed:
                    change.delete_data_file(replaced[path].task.file)
                self._append(change, table)
        self._send(transaction)

    def came_too_late(self, access: Access, error: Exception, table: Table | None) -> bool:  # noqa: ARG002
        """Whether another snapshot came first."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        return isinstance(error, CommitFailedException | TableAlreadyExistsError)

    def remove_attempt(self, access: Access) -> None:
        """Remove the files."""
        Folder(access.bridge, self.staging).delete()

    def undo(self, access: Access) -> None:
        """Remove the files, and the new rows; no snapshot names them."""
        super().undo(access)
        self.finish(access)
