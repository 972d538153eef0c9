"""Upserts into Delta tables: files with replaced rows are rewritten, and a single log entry replaces them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.delta_columns import DeltaColumns
from penstock.connectors.delta_commit import (
    PAUSES,
    PreparedDelta,
    check_names,
    commit_properties,
    create_table,
    definite_outcome,
    record_files,
)
from penstock.connectors.delta_files import DeltaFile, files_of, spark_reads_partition
from penstock.connectors.prepared_upsert import PreparedUpsert, Upsert
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.upsert import balanced
from penstock.errors import SinkError
from penstock.spark.files import EVERY_ROW, read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame

    from penstock.commit import Access


@dataclass(frozen=True, slots=True)
class DeltaUpsert(Upsert[DeltaFile]):
    """The computation of an upsert into a Delta table.

    Parameters
    ----------
    spark, key, rows, schema
        As in `Upsert`.
    root
        The table's folder, as Spark addresses it.
    """

    root: str

    def path_for_spark(self, file: DeltaFile) -> str:
        """Return the path by which Spark reads a file."""
        return f"{self.root}/{file.path}"

    def read(self, files: Iterable[DeltaFile]) -> DataFrame:
        """Return all rows of files; Spark reads the partition values from folder names."""
        paths = [self.path_for_spark(file) for file in files]
        return read_parquet(self.spark, self.schema, paths, basePath=self.root, **EVERY_ROW)

    def write(self, table: DeltaTable | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write the new files of the table; return the paths of the files that they replace."""
        rows = self.new_rows()
        predicates = self.key.check(rows)
        if predicates is None:
            staged.write(rows)
            return ()
        files = [] if table is None else files_of(table, predicates, DeltaColumns.of(table))
        rows, replaced = self.merged(files, rows)
        staged.write(balanced(rows, staged.partition_by))
        return replaced


def check_upsert(table: DeltaTable, path: str) -> None:
    """Reject a table whose files cannot be rewritten.

    Raises
    ------
    SinkError
        If the table has deletion vectors, a change data feed or ``delta.appendOnly``, or a file whose partition values
        Spark cannot read from its path.
    """
    check_names(table, path)
    columns, configuration = DeltaColumns.of(table), table.metadata().configuration
    files, cause = files_of(table, (), columns), ""
    if any(file.selection is not None for file in files):
        cause = "rows of it are deleted by deletion vectors"
    elif not all(spark_reads_partition(file, columns) for file in files):
        cause = "Spark cannot read the partitions off the names of its folders"
    elif str(configuration.get("delta.enableChangeDataFeed")).lower() == "true":
        cause = "it records the changes of its rows (delta.enableChangeDataFeed)"
    elif str(configuration.get("delta.appendOnly")).lower() == "true":
        cause = "its rows may not be replaced (delta.appendOnly)"
    if cause:
        raise SinkError(f"rows of table {path} cannot be replaced", cause=cause, hint="use Delta Lake's MERGE")


@dataclass(frozen=True)
class PreparedDeltaUpsert(PreparedUpsert["DeltaTable"], PreparedDelta):
    """Commit record of an upsert: files that replace others."""

    kind: ClassVar[str] = "delta-upsert"
    pauses: ClassVar[tuple[float, ...]] = PAUSES

    def commit(self, access: Access) -> None:
        """Write the entry of the log; recompute and retry if another commit came first."""
        attempts = self.commit_optimistically(access)
        for obsolete in attempts[:-1]:
            obsolete.remove_files(access)
        for recomputed in attempts[1:]:
            Folder(access.bridge, recomputed.staging).delete()

    def complete(self, access: Access) -> None:
        """Commit; `commit` checks every version for the entry."""
        self.commit(access)

    def load_table(self, access: Access) -> DeltaTable | None:
        """Return the latest version."""
        return self.table_now(access)

    def is_in(self, table: DeltaTable | None) -> bool:
        """Return whether the log has the job's entry, as for an append."""
        return PreparedDelta.is_in(self, table)

    def fitting(self, access: Access, table: DeltaTable | None) -> PreparedDeltaUpsert:
        """Return a record for this version; reject a version with other columns or partitions."""
        self.check_table(table)
        return super().fitting(access, table)

    def is_based_on(self, table: DeltaTable | None) -> bool:
        """Return whether the record was computed from this version."""
        return self.version == (None if table is None else table.version())

    def still_fits(self, access: Access, table: DeltaTable) -> bool:
        """Return whether the files fit a later version unchanged; reject a table whose rows cannot be replaced."""
        from deltalake import DeltaTable

        check_upsert(table, self.path)
        if self.version is None:
            return False
        columns = DeltaColumns.of(table)
        base = DeltaTable(self.log_path(access), self.version, self.storage_options(access) or None)
        before, now = files_of(base, (), columns), files_of(table, (), columns)
        return self._upsert(access).still_fits(self.removed, before, now)

    def recomputed(self, access: Access, table: DeltaTable | None) -> PreparedDeltaUpsert:
        """Write the files of the upsert for another version, and return their record."""
        version = None if table is None else table.version()
        staged = StagedFiles(access.bridge.spark, self.root, self.partition_by)
        removed = self._upsert(access).write(table, staged)
        return replace(self, files=record_files(staged), staging=staged.folder, version=version, removed=removed)

    def _upsert(self, access: Access) -> DeltaUpsert:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self.schema))
        return DeltaUpsert(access.bridge.spark, self.table_key, self.rows, schema, self.root)

    def commit_onto(self, access: Access, table: DeltaTable | None) -> None:
        """Move the files into the table's folder, and write the log entry after `table`."""
        from deltalake import Schema
        from deltalake.transaction import RemoveAction

        self.move_staged_files(access)
        schema, added = Schema.from_json(self.schema), self._added()
        if table is None:
            create_table(self, access, schema, added)
            return
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [*added, *(RemoveAction(path, True, now) for path in self.removed)]
        partition_by, properties = list(self.partition_by), commit_properties(self.receipt, self.token, 0)
        with definite_outcome(self.target):
            table.create_write_transaction(actions, "append", schema, partition_by, commit_properties=properties)

    def is_conflict(self, access: Access, error: Exception, table: DeltaTable | None) -> bool:
        """Return whether another entry came first; deltalake raises the same errors for other reasons."""
        from deltalake.exceptions import DeltaError

        return isinstance(error, DeltaError) and self.has_newer_version(access, table)

    def remove_attempt(self, access: Access) -> None:
        """Remove the files from the table and the staging folder."""
        self.remove_files(access)
        Folder(access.bridge, self.staging).delete()
