"""An upsert into a Delta table: files with a replaced row are written anew, and one entry of the log tells of both.

The new rows lie in a folder of their own until the entry is in the log. If another program's entry came first, its
files are looked at too, and the upsert is worked out again if they hold one of the keys, or if a file is gone.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.delta_columns import DeltaColumns
from penstock.connectors.delta_commit import (
    PAUSE,
    TRIES,
    PreparedDelta,
    check_names,
    create_table,
    files_in_log,
    properties_of,
)
from penstock.connectors.delta_files import DeltaFile, files_of, spark_finds
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.upsert import Key, balanced, plain_path
from penstock.errors import SinkError
from penstock.spark.files import EVERY_ROW, read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access

log = logging.getLogger("penstock.sinks")


@dataclass(frozen=True, slots=True)
class DeltaUpsert:
    """What an upsert needs to be worked out.

    Parameters
    ----------
    spark
        The session.
    root
        The table's folder, as Spark knows it.
    key
        The columns that tell rows apart.
    rows
        The folder of the new rows.
    schema
        Their columns, which are the table's.
    """

    spark: SparkSession
    root: str
    key: Key
    rows: str
    schema: StructType

    def new_rows(self) -> DataFrame:
        """Return the new rows."""
        return read_parquet(self.spark, self.schema, [self.rows], **EVERY_ROW)

    def write(self, table: DeltaTable | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write what comes into the table; return the files that it replaces."""
        rows = self.new_rows()
        conditions = self.key.check(rows)
        if conditions is None:
            staged.write(rows)
            return ()
        files = [] if table is None else files_of(table, conditions, DeltaColumns.of(table))
        found = self.with_keys(files, rows)
        if found:
            rows = self.key.merged(self._read(found), rows)
        staged.write(balanced(rows, staged.partition_by))
        return tuple(one.path for one in found)

    def with_keys(self, files: Sequence[DeltaFile], rows: DataFrame) -> list[DeltaFile]:
        """Return the files that have a row with one of the keys."""
        if not files:
            return []
        names = self.key.files_with(self._read(files), rows)
        found = [one for one in files if plain_path(f"{self.root}/{one.path}") in names]
        if len(found) != len(names):
            raise SinkError(
                f"{self.key.where} cannot be written",
                cause=f"Spark reads {len(names)} files with replaced rows, and the log names {len(found)} of them",
                hint="report this, with the names of the table's files",
            )
        return found

    def _read(self, files: Iterable[DeltaFile]) -> DataFrame:
        paths = [f"{self.root}/{one.path}" for one in files]
        return read_parquet(self.spark, self.schema, paths, basePath=self.root, **EVERY_ROW)


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
class PreparedDeltaUpsert(PreparedDelta):
    """Files that take the place of others.

    Parameters
    ----------
    key
        The columns that tell rows apart.
    rows
        The folder of the new rows, from which all can be worked out again.
    removed
        The files that are replaced.
    """

    kind: ClassVar[str] = "delta-upsert"

    key: tuple[str, ...] = ()
    rows: str = ""
    removed: tuple[str, ...] = ()

    def commit(self, access: Access) -> None:
        """Write the entry of the log, onto the version that was looked at; look again if there is a newer one."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        tried = [self]
        for attempt in range(TRIES):
            if self.is_committed(access):
                break
            table = self._check(access)
            fitting = tried[-1].fitting(access, table)
            if fitting is not tried[-1]:
                tried.append(fitting)
            fitting.put_in_place(access)
            try:
                fitting.write_onto(access, table)
                break
            except DeltaError as error:  # of a new table none tells that another was quicker
                if attempt == TRIES - 1 or not (table is None or isinstance(error, CommitFailedError)):
                    raise
                time.sleep(PAUSE * (1 + attempt))
        for useless in tried[:-1]:
            useless.remove_files(access)
        for worked_out_again in tried[1:]:
            Folder(access.bridge, worked_out_again.staging).delete()

    def fitting(self, access: Access, table: DeltaTable | None) -> PreparedDeltaUpsert:
        """Return what fits a version: this, or what is worked out again."""
        version = None if table is None else table.version()
        if version == self.version:
            return self
        if table is not None:
            check_upsert(table, self.path)
            if self._still_fits(access, table):
                return self
        log.warning("table %s has changed, the upsert is worked out again", self.path)
        staged = StagedFiles(access.bridge.spark, self.root, self.partition_by)
        removed = self._upsert(access).write(table, staged)
        return replace(self, files=files_in_log(staged), staging=staged.folder, version=version, removed=removed)

    def _still_fits(self, access: Access, table: DeltaTable) -> bool:
        """Whether the replaced files are still there, and no file that has come since has one of the keys."""
        from deltalake import DeltaTable

        if self.version is None:
            return False
        columns = DeltaColumns.of(table)
        then = DeltaTable(self.place(access), self.version, self.reach(access) or None)
        before = {one.path for one in files_of(then, (), columns)}
        now = files_of(table, (), columns)
        if not {one.path for one in now}.issuperset(self.removed):
            return False
        upsert = self._upsert(access)
        return not upsert.with_keys([one for one in now if one.path not in before], upsert.new_rows())

    def _upsert(self, access: Access) -> DeltaUpsert:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self.schema))
        return DeltaUpsert(access.bridge.spark, self.root, Key(self.key, f"table {self.path}"), self.rows, schema)

    def write_onto(self, access: Access, table: DeltaTable | None) -> None:
        """Write the entry of the log as the one after a version."""
        from deltalake import Schema
        from deltalake.transaction import RemoveAction

        schema, added = Schema.from_json(self.schema), self._added()
        if table is None:
            create_table(self, access, schema, added)
            return
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [*added, *(RemoveAction(path, True, now) for path in self.removed)]
        told = properties_of(self.receipt, self.token, 0)
        table.create_write_transaction(actions, "append", schema, list(self.partition_by), commit_properties=told)

    def finish(self, access: Access) -> None:
        """Remove the folders of the new rows, and of files."""
        super().finish(access)
        Folder(access.bridge, self.rows).delete()
