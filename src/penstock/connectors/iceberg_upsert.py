"""Upserts into Iceberg tables: files with replaced rows are rewritten, and a single snapshot replaces them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.iceberg_checks import check_same_columns, check_upsert, live_files, snapshot_of
from penstock.connectors.iceberg_commit import (
    PAUSES,
    PreparedIceberg,
    record_files,
    table_of,
    without_retries,
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
    """The computation of an upsert into an Iceberg table."""

    def path_for_spark(self, file: IcebergFile) -> str:
        """Return the path by which Spark reads a file."""
        return file.path

    def read(self, files: Iterable[IcebergFile]) -> DataFrame:
        """Return all rows of files; the files also store partition columns."""
        return read_parquet(self.spark, self.schema, [file.path for file in files], **EVERY_ROW)

    def write(self, table: Table | None, partitions: IcebergPartitions | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write the new files of the table; return the paths of the files that they replace."""
        if table is not None:
            check_same_columns(table, self.schema)
        rows = self.new_rows()
        predicates = self.key.check(rows)
        files = []
        if table is not None and predicates is not None:
            files = live_files(table, condition_of(predicates, self.schema))
        rows, replaced = self.merged(files, rows)
        if partitions is not None:
            rows = partitions.with_folders(rows)
        staged.write(balanced(rows, staged.partition_by))
        return replaced


@dataclass(frozen=True)
class PreparedIcebergUpsert(PreparedUpsert["Table"], PreparedIceberg):
    """Commit record of an upsert: files that replace others.

    Parameters
    ----------
    snapshot
        The snapshot from which the upsert was computed, None if there was none.
    """

    kind: ClassVar[str] = "iceberg-upsert"
    pauses: ClassVar[tuple[float, ...]] = PAUSES

    snapshot: int | None = None

    def commit(self, access: Access) -> None:
        """Add a snapshot; recompute and retry if another commit came first."""
        for obsolete in self.commit_optimistically(access)[:-1]:
            obsolete.remove_attempt(access)

    def load_table(self, access: Access) -> Table | None:
        """Return the table with its current metadata."""
        return table_of(self.connect(access), self.table)

    def is_in(self, table: Table | None) -> bool:
        """Return whether the table has the job's snapshot, as for an append."""
        return PreparedIceberg.is_in(self, table)

    def fitting(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Return a record for the current snapshot; reject a table with other columns or partitions."""
        if table is not None:
            self._check_partitions(table)
            check_same_columns(table, self._columns())
        return super().fitting(access, table)

    def is_based_on(self, table: Table | None) -> bool:
        """Return whether the record was computed from the current snapshot."""
        return self.snapshot == (None if table is None else snapshot_of(table))

    def still_fits(self, access: Access, table: Table) -> bool:
        """Return whether the files fit a later snapshot unchanged; reject a table whose rows cannot be replaced."""
        check_upsert(table)
        if self.snapshot is None or table.snapshot_by_id(self.snapshot) is None:
            return False
        upsert = self._upsert(access)
        before = files_of(table, self.snapshot, condition_of((), upsert.schema))
        return upsert.still_fits(self.removed, before, live_files(table))

    def recomputed(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Write the files of the upsert for another snapshot, and return their record."""
        snapshot = None if table is None else snapshot_of(table)
        partitions = None if table is None else IcebergPartitions.of(table)
        staged = StagedFiles(access.bridge.spark, f"{self.root}/data", [] if partitions is None else partitions.folders)
        removed = self._upsert(access).write(table, partitions, staged)
        files, texts = record_files(staged)
        return replace(self, files=files, partitions=texts, staging=staged.folder, removed=removed, snapshot=snapshot)

    def _upsert(self, access: Access) -> IcebergUpsert:
        return IcebergUpsert(access.bridge.spark, self.table_key, self.rows, self._columns())

    def _columns(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.schema))

    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Add a snapshot after `table`'s current snapshot."""
        if table is None:
            self._create_table(self.connect(access))
            return
        replaced = {file.path: file for file in live_files(table)} if self.removed else {}
        transaction = without_retries(table).transaction()
        if not self.removed:
            self._add_files(transaction, table, has_rows=self.snapshot is not None)
        else:
            self._set_name_mapping(transaction, table)
            with transaction.update_snapshot(snapshot_properties=self._snapshot_properties()).overwrite() as change:
                for path in self.removed:
                    change.delete_data_file(replaced[path].task.file)
                self._append(change, table)
        self._commit_transaction(transaction)

    def is_conflict(self, access: Access, error: Exception, table: Table | None) -> bool:  # noqa: ARG002
        """Return whether another snapshot came first."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        return isinstance(error, CommitFailedException | TableAlreadyExistsError)

    def remove_attempt(self, access: Access) -> None:
        """Remove the files."""
        Folder(access.bridge, self.staging).delete()

    def undo(self, access: Access) -> None:
        """Remove the files and the new rows, which are in no snapshot."""
        super().undo(access)
        self.finish(access)
