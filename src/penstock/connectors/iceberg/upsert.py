"""Upserts into an Iceberg table: files that replace those with changed rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.iceberg.commit import (
    PreparedIceberg,
    check_same_columns,
    live_files,
    record_files,
    snapshot_of,
    without_retries,
)
from penstock.connectors.iceberg.files import IcebergFile, condition_of, files_of
from penstock.connectors.iceberg.partitions import IcebergPartitions
from penstock.connectors.tables.commit import PreparedUpsert, Upsert
from penstock.connectors.tables.table_files import StagedFiles
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from penstock.commit import Access
    from penstock.connectors.core.predicates import Predicate


def check_upsert(table: Table) -> None:
    """Reject a table whose files Spark cannot rewrite.

    Its columns have changed, files have deleted rows, or pyiceberg would round its partition values.
    """
    from pyiceberg.types import DoubleType

    schema, cause = table.schema(), ""
    by_double = any(
        str(field.transform) == "identity" and isinstance(schema.find_type(field.source_id), DoubleType)
        for spec in table.specs().values()
        for field in spec.fields
    )
    if len(table.metadata.schemas) > 1 or table.name_mapping() not in (None, schema.name_mapping):
        cause = "its columns have changed since it was created, and Spark finds columns of files by their names"
    elif by_double:
        cause = "it is partitioned by a column of type double, which pyiceberg rounds when it writes its entries anew"
    if cause:
        name = ".".join(table.name())
        raise SinkError(f"rows of table {name} cannot be replaced", cause=cause, hint="use another engine's MERGE")
    live_files(table)


@dataclass(frozen=True)
class IcebergUpsert(Upsert["Table", IcebergFile]):
    """The computation of an upsert into an Iceberg table; `partitions` is None for a new table."""

    partitions: IcebergPartitions | None = None

    def files(self, table: Table, predicates: Sequence[Predicate]) -> list[IcebergFile]:
        """Return the files of the current snapshot that may have rows that match the predicates."""
        return live_files(table, condition_of(predicates, self.schema))

    def with_folders(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns that become folders."""
        return rows if self.partitions is None else self.partitions.with_folders(rows)

    def write(self, table: Table | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write the new files of the table; return the paths of the files that they replace."""
        if table is not None:
            check_same_columns(table, self.schema)
        return super().write(table, staged)


@dataclass(frozen=True)
class PreparedIcebergUpsert(PreparedUpsert["Table"], PreparedIceberg):
    """Commit record of an upsert: files that replace others.

    `snapshot` is the snapshot from which the upsert was computed, None if there was none.
    """

    kind: ClassVar[str] = "iceberg-upsert"

    snapshot: int | None = None

    def commit(self, access: Access) -> None:
        """Add a snapshot; recompute and retry if another commit came first."""
        for obsolete in self.commit_optimistically(access)[:-1]:
            obsolete.remove_attempt(access)

    def fitting(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Return a record for the current snapshot; reject a table with other columns or partitions."""
        if table is not None:
            self._check_partitions(table)
            check_same_columns(table, self.row_type)
        return super().fitting(access, table)

    def is_based_on(self, table: Table | None) -> bool:
        """Return whether the record was computed from the current snapshot."""
        return self.snapshot == snapshot_of(table)

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
        snapshot = snapshot_of(table)
        partitions = None if table is None else IcebergPartitions.of(table)
        staged = StagedFiles(access.bridge.spark, f"{self.root}/data", [] if partitions is None else partitions.folders)
        removed = self._upsert(access, partitions).write(table, staged)
        files, texts = record_files(staged)
        return replace(self, files=files, partitions=texts, staging=staged.folder, removed=removed, snapshot=snapshot)

    def _upsert(self, access: Access, partitions: IcebergPartitions | None = None) -> IcebergUpsert:
        return IcebergUpsert(access.bridge.spark, self.table_key, self.rows, self.row_type, partitions=partitions)

    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Add a snapshot after `table`'s current snapshot, without the replaced files."""
        if table is None or not self.removed:
            super().commit_onto(access, table)
            return
        files = {file.path: file for file in live_files(table)}
        transaction = without_retries(table).transaction()
        self._set_name_mapping(transaction, table)
        with transaction.update_snapshot(snapshot_properties=self._snapshot_properties()).overwrite() as change:
            for path in self.removed:
                change.delete_data_file(files[path].task.file)
            self._append(change, table)
        self._commit_transaction(transaction)

    def undo(self, access: Access) -> None:
        """Remove the files and the new rows, which are in no snapshot."""
        super().undo(access)
        self.finish(access)
