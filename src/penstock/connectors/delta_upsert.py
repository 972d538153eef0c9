"""An upsert into a Delta table: files with a replaced row are written anew, and one entry of the log tells of both."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.delta_columns import DeltaColumns
from penstock.connectors.delta_commit import (
    PAUSES,
    PreparedDelta,
    answered_clearly,
    check_names,
    create_table,
    files_in_log,
    properties_of,
)
from penstock.connectors.delta_files import DeltaFile, files_of, spark_finds
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
    """What an upsert needs to be worked out.

    Parameters
    ----------
    spark, key, rows, schema
        As of an `Upsert`.
    root
        The table's folder, as Spark knows it.
    """

    root: str

    def place_of(self, file: DeltaFile) -> str:
        """Return where Spark finds a file."""
        return f"{self.root}/{file.path}"

    def read(self, files: Iterable[DeltaFile]) -> DataFrame:
        """Return all rows of files; the values of partition columns are in the names of folders."""
        paths = [self.place_of(one) for one in files]
        return read_parquet(self.spark, self.schema, paths, basePath=self.root, **EVERY_ROW)

    def write(self, table: DeltaTable | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write what comes into the table; return the files that it replaces."""
        rows = self.new_rows()
        conditions = self.key.check(rows)
        if conditions is None:
            staged.write(rows)
            return ()
        files = [] if table is None else files_of(table, conditions, DeltaColumns.of(table))
        rows, replaced = self.merged(files, rows)
        staged.write(balanced(rows, staged.partition_by))
        return replaced


def check_upsert(table: DeltaTable, path: str) -> None:
    """Refuse a table whose files cannot be written anew.

    Raises
    ------
    SinkError
        If rows are deleted by deletion vectors, changes are recorded, files may not be removed, or a file lies where
        Spark would not find its partition.
    """
    check_names(table, path)
    columns, configuration = DeltaColumns.of(table), table.metadata().configuration
    files, why = files_of(table, (), columns), ""
    if any(one.kept is not None for one in files):
        why = "rows of it are deleted by deletion vectors"
    elif not all(spark_finds(one, columns) for one in files):
        why = "Spark cannot read the partitions off the names of its folders"
    elif str(configuration.get("delta.enableChangeDataFeed")).lower() == "true":
        why = "it records the changes of its rows (delta.enableChangeDataFeed)"
    elif str(configuration.get("delta.appendOnly")).lower() == "true":
        why = "its rows may not be replaced (delta.appendOnly)"
    if why:
        raise SinkError(f"rows of table {path} cannot be replaced", cause=why, hint="use Delta Lake's MERGE")


@dataclass(frozen=True)
class PreparedDeltaUpsert(PreparedUpsert["DeltaTable"], PreparedDelta):
    """Files that take the place of others."""

    kind: ClassVar[str] = "delta-upsert"
    pauses: ClassVar[tuple[float, ...]] = PAUSES

    def commit(self, access: Access) -> None:
        """Write the entry of the log, onto the version that was looked at; look again if there is a newer one."""
        tried = self.commit_what_fits(access)
        for useless in tried[:-1]:
            useless.remove_files(access)
        for worked_out_again in tried[1:]:
            Folder(access.bridge, worked_out_again.staging).delete()

    def complete(self, access: Access) -> None:
        """As `commit`, which looks at each version."""
        self.commit(access)

    def look(self, access: Access) -> DeltaTable | None:
        """Return the newest version."""
        return self.table_now(access)

    def is_in(self, table: DeltaTable | None) -> bool:
        """As an append is."""
        return PreparedDelta.is_in(self, table)

    def fitting(self, access: Access, table: DeltaTable | None) -> PreparedDeltaUpsert:
        """Return what fits a version; one with other columns or partitions is refused."""
        self.check_table(table)
        return super().fitting(access, table)

    def has_seen(self, table: DeltaTable | None) -> bool:
        """Whether this is the version that was looked at."""
        return self.version == (None if table is None else table.version())

    def still_fits(self, access: Access, table: DeltaTable) -> bool:
        """Whether a later version may get the files as they are; one whose rows cannot be replaced is refused."""
        from deltalake import DeltaTable

        check_upsert(table, self.path)
        if self.version is None:
            return False
        columns = DeltaColumns.of(table)
        then = DeltaTable(self.place(access), self.version, self.reach(access) or None)
        before, now = files_of(then, (), columns), files_of(table, (), columns)
        return self._upsert(access).still_fits(self.removed, before, now)

    def worked_out_again(self, access: Access, table: DeltaTable | None) -> PreparedDeltaUpsert:
        """Write the files that fit a version."""
        version = None if table is None else table.version()
        staged = StagedFiles(access.bridge.spark, self.root, self.partition_by)
        removed = self._upsert(access).write(table, staged)
        return replace(self, files=files_in_log(staged), staging=staged.folder, version=version, removed=removed)

    def _upsert(self, access: Access) -> DeltaUpsert:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self.schema))
        return DeltaUpsert(access.bridge.spark, self.table_key, self.rows, schema, self.root)

    def commit_onto(self, access: Access, table: DeltaTable | None) -> None:
        """Move the files in place, and write the entry of the log as the one after a version."""
        from deltalake import Schema
        from deltalake.transaction import RemoveAction

        self.put_in_place(access)
        schema, added = Schema.from_json(self.schema), self._added()
        if table is None:
            create_table(self, access, schema, added)
            return
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [*added, *(RemoveAction(path, True, now) for path in self.removed)]
        by, told = list(self.partition_by), properties_of(self.receipt, self.token, 0)
        with answered_clearly(self.target):
            table.create_write_transaction(actions, "append", schema, by, commit_properties=told)

    def came_too_late(self, access: Access, error: Exception, table: DeltaTable | None) -> bool:
        """Whether another entry came first; deltalake refuses other things by the same errors."""
        from deltalake.exceptions import DeltaError

        return isinstance(error, DeltaError) and self.has_moved(access, table)

    def remove_attempt(self, access: Access) -> None:
        """Remove the files, wherever they lie."""
        self.remove_files(access)
        Folder(access.bridge, self.staging).delete()
