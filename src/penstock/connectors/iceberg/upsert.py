"""Upserts into an Iceberg table: new files replace the files that have rows with the same keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.iceberg.commit import (
    PreparedIceberg,
    check_same_columns,
    current_files,
    current_snapshot_id,
    list_files,
    without_retries,
)
from penstock.connectors.iceberg.files import IcebergFile, condition_of, files_of
from penstock.connectors.iceberg.partitions import IcebergPartitions
from penstock.connectors.tables.commit import PreparedUpsert, Upsert
from penstock.connectors.tables.table_files import StagedFiles
from penstock.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from penstock.commit import Access
    from penstock.connectors.core.predicates import Predicate


def check_upsert(table: Table) -> None:
    """Reject a table whose files Spark cannot rewrite.

    Such a table has changed columns, deleted rows, files that are not Parquet, or partition values of type double.
    """
    from pyiceberg.types import DoubleType

    schema, cause = table.schema(), ""
    by_double = any(
        str(field.transform) == "identity" and isinstance(schema.find_type(field.source_id), DoubleType)
        for spec in table.specs().values()
        for field in spec.fields
    )
    if len(table.metadata.schemas) > 1 or table.name_mapping() not in (None, schema.name_mapping):
        cause = "its columns have changed since it was created, and Spark reads the columns of files by their names"
    elif by_double:
        cause = "it is partitioned by a column of type double, which pyiceberg rounds when it rewrites manifest entries"
    if cause:
        name = ".".join(table.name())
        raise SinkError(f"rows of table {name} cannot be replaced", cause=cause, hint="use another engine's MERGE")
    current_files(table)  # raises `SinkError` for files that Spark cannot read


@dataclass(frozen=True)
class IcebergUpsert(Upsert["Table", IcebergFile]):
    """The computation of an upsert into an Iceberg table; `partitions` is None for a new table."""

    partitions: IcebergPartitions | None = None

    def files(self, table: Table, predicates: Sequence[Predicate]) -> list[IcebergFile]:
        """Return the files of the current snapshot that may have rows that match the predicates."""
        return current_files(table, condition_of(predicates, self.schema))

    def with_folder_columns(self, rows: DataFrame) -> DataFrame:
        """Return rows with an added column for each partition field; the values of this column become folder names."""
        return rows if self.partitions is None else self.partitions.with_folder_columns(rows)

    def write(self, table: Table | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write the new files of the table; return the paths of the files that they replace."""
        if table is not None:
            check_same_columns(table, self.schema)
        return super().write(table, staged)


@dataclass(frozen=True)
class PreparedIcebergUpsert(PreparedUpsert["Table"], PreparedIceberg):
    """Commit record of an upsert: files that replace files of the table.

    `snapshot` is the id of the snapshot from which the upsert was computed; None if the table had no snapshot.
    """

    kind: ClassVar[str] = "iceberg-upsert"

    snapshot: int | None = None

    def commit(self, access: Access) -> None:
        """Add a snapshot; recompute the upsert if it does not fit the current snapshot, and retry after a conflict."""
        for obsolete in self.commit_optimistically(access)[:-1]:
            obsolete.remove_attempt(access)

    def fitting(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Return this record or a recomputed record for the current snapshot; reject changed columns or partitions."""
        if table is not None:
            self._check_partitions(table)
            check_same_columns(table, self.row_type)
        return super().fitting(access, table)

    def is_based_on(self, table: Table | None) -> bool:
        """Whether the record was computed from the current snapshot."""
        return self.snapshot == current_snapshot_id(table)

    def still_fits(self, access: Access, table: Table) -> bool:
        """Whether the files fit a later snapshot unchanged; reject a table whose rows cannot be replaced."""
        check_upsert(table)
        if self.snapshot is None or table.snapshot_by_id(self.snapshot) is None:
            return False
        upsert = self._upsert(access)
        base_files = files_of(table, self.snapshot, condition_of((), upsert.schema))
        return upsert.still_fits(self.removed, base_files, current_files(table))

    def recomputed(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Write the files of the upsert for another snapshot, and return their record."""
        snapshot = current_snapshot_id(table)
        partitions = None if table is None else IcebergPartitions.of(table)
        staged = StagedFiles(access.bridge.spark, f"{self.root}/data", [] if partitions is None else partitions.folders)
        removed = self._upsert(access, partitions).write(table, staged)
        files, values = list_files(staged)
        return replace(self, files=files, partitions=values, staging=staged.folder, removed=removed, snapshot=snapshot)

    def _upsert(self, access: Access, partitions: IcebergPartitions | None = None) -> IcebergUpsert:
        return IcebergUpsert(access.bridge.spark, self.table_key, self.rows, self.row_type, partitions=partitions)

    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Add a snapshot to `table` in which the new files are added and the replaced files are removed."""
        if table is None or not self.removed:
            super().commit_onto(access, table)
            return
        files = {file.path: file for file in current_files(table)}
        transaction = without_retries(table).transaction()
        self._set_name_mapping(transaction, table)
        with transaction.update_snapshot(snapshot_properties=self._snapshot_properties()).overwrite() as update:
            for path in self.removed:
                update.delete_data_file(files[path].task.file)
            self._append(update, table)
        self._commit_transaction(transaction)

    def undo(self, access: Access) -> None:
        """Remove the new files and the staged new rows, which are in no snapshot."""
        super().undo(access)
        self.finish(access)
