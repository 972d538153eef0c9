"""An upsert into an Iceberg table: files with a replaced row are written anew, and one snapshot names the new ones.

The new rows lie in a folder of their own until the snapshot is there. If another program's snapshot came first, its
files are looked at too, and the upsert is worked out again if they hold one of the keys, or if a file is gone.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.iceberg_commit import (
    PAUSE,
    TRIES,
    PreparedIceberg,
    files_in_snapshot,
    table_of,
    tried_once,
)
from penstock.connectors.iceberg_files import IcebergFile, condition_of, files_of, spark_schema
from penstock.connectors.iceberg_partitions import IcebergPartitions
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.upsert import Key, balanced, plain_path
from penstock.errors import SinkError
from penstock.spark.files import EVERY_ROW, read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access

log = logging.getLogger("penstock.sinks")


@dataclass(frozen=True, slots=True)
class IcebergUpsert:
    """What an upsert needs to be worked out.

    Parameters
    ----------
    spark
        The session.
    key
        The columns that tell rows apart.
    rows
        The folder of the new rows.
    schema
        Their columns, which are the table's.
    """

    spark: SparkSession
    key: Key
    rows: str
    schema: StructType

    def new_rows(self) -> DataFrame:
        """Return the new rows."""
        return read_parquet(self.spark, self.schema, [self.rows], **EVERY_ROW)

    def write(self, table: Table | None, partitions: IcebergPartitions | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write what comes into the table; return the files that it replaces."""
        if table is not None:
            check_same_columns(table, self.schema)
        rows = self.new_rows()
        conditions = self.key.check(rows)
        files = []
        if table is not None and conditions is not None:
            files = live_files(table, condition_of(conditions, self.schema))
        found = self.with_keys(files, rows)
        if found:
            rows = self.key.merged(self._read(found), rows)
        if partitions is not None:
            rows = partitions.with_folders(rows)
        staged.write(balanced(rows, staged.partition_by))
        return tuple(one.path for one in found)

    def with_keys(self, files: Sequence[IcebergFile], rows: DataFrame) -> list[IcebergFile]:
        """Return the files that have a row with one of the keys."""
        if not files:
            return []
        names = self.key.files_with(self._read(files), rows)
        found = [one for one in files if plain_path(one.path) in names]
        if len(found) != len(names):
            raise SinkError(
                f"{self.key.where} cannot be written",
                cause=f"Spark reads {len(names)} files with replaced rows, and the table names {len(found)} of them",
                hint="report this, with the names of the table's files",
            )
        return found

    def _read(self, files: Iterable[IcebergFile]) -> DataFrame:
        return read_parquet(self.spark, self.schema, [one.path for one in files], **EVERY_ROW)


def live_files(table: Table, condition: BooleanExpression | None = None) -> list[IcebergFile]:
    """Return the files of the current snapshot that may hold rows that matter, each with all its rows.

    Raises
    ------
    SinkError
        If one is not a plain file of rows.
    """
    from pyiceberg.expressions import AlwaysTrue

    snapshot = snapshot_of(table)
    found = [] if snapshot is None else files_of(table, snapshot, AlwaysTrue() if condition is None else condition)
    if not all(one.is_plain for one in found):
        raise SinkError(
            f"rows of table {'.'.join(table.name())} cannot be replaced",
            cause="it has files with deleted rows, or files that are not Parquet",
            hint="rewrite its files with their deletes applied, as Iceberg's rewrite_data_files does",
        )
    return found


def snapshot_of(table: Table) -> int | None:
    """Return the number of a table's current snapshot, None if it has none."""
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def check_same_columns(table: Table, schema: StructType) -> None:
    """Refuse a table with other columns than those of the new rows: files written anew would lack the others.

    Raises
    ------
    SinkError
        If a name or a type differs.
    """
    now, written = ({one.name: one.dataType.simpleString() for one in of} for of in (spark_schema(table, None), schema))
    if now != written:
        names = sorted(name for name in now.keys() | written.keys() if now.get(name) != written.get(name))
        raise SinkError(
            f"the columns of table {'.'.join(table.name())} have changed while the job ran",
            cause=f"these are not as the job has written them: {', '.join(names)}",
            hint="run the job again",
        )


def check_upsert(table: Table) -> None:
    """Refuse a table whose files Spark cannot write anew.

    Raises
    ------
    SinkError
        If its columns have changed, rows of files are deleted, or pyiceberg would lose digits of its partitions.
    """
    from pyiceberg.types import DoubleType

    schema, why = table.schema(), ""
    by_double = any(
        str(field.transform) == "identity" and isinstance(schema.find_type(field.source_id), DoubleType)
        for spec in table.specs().values()
        for field in spec.fields
    )
    if len(table.metadata.schemas) > 1 or table.name_mapping() not in (None, schema.name_mapping):
        why = "its columns have changed since it was made, and Spark finds columns of files by their names"
    elif by_double:
        why = "it is partitioned by a column of type double, which pyiceberg rounds when it writes its entries anew"
    if why:
        name = ".".join(table.name())
        raise SinkError(f"rows of table {name} cannot be replaced", cause=why, hint="use another engine's MERGE")
    live_files(table)


@dataclass(frozen=True)
class PreparedIcebergUpsert(PreparedIceberg):
    """Files that take the place of others.

    Parameters
    ----------
    key
        The columns that tell rows apart.
    rows
        The folder of the new rows, from which all can be worked out again.
    removed
        The files that are replaced.
    snapshot
        The snapshot that was looked at, None where there was none.
    """

    kind: ClassVar[str] = "iceberg-upsert"

    key: tuple[str, ...] = ()
    rows: str = ""
    removed: tuple[str, ...] = ()
    snapshot: int | None = None

    def commit(self, access: Access) -> None:
        """Add a snapshot after the one that was looked at; look again if there is a newer one."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        tried = [self]
        for attempt in range(TRIES):
            if self.is_committed(access):
                break
            table = table_of(self.connect(access), self.table)
            fitting = tried[-1].fitting(access, table)
            if fitting is not tried[-1]:
                tried.append(fitting)
            try:
                fitting.add_onto(access, table)
                break
            except (CommitFailedException, TableAlreadyExistsError):
                if attempt == TRIES - 1:
                    raise
                time.sleep(PAUSE * 2**attempt)
        for useless in tried[:-1]:
            Folder(access.bridge, useless.staging).delete()

    def fitting(self, access: Access, table: Table | None) -> PreparedIcebergUpsert:
        """Return what fits a table as it is now: this, or what is worked out again."""
        snapshot = None if table is None else snapshot_of(table)
        if table is not None:
            self._check_partitions(table)
            check_same_columns(table, self._columns())
        if snapshot == self.snapshot:
            return self
        if table is not None:
            check_upsert(table)
            if self._still_fits(access, table):
                return self
        log.warning("table %s has changed, the upsert is worked out again", self.table)
        partitions = None if table is None else IcebergPartitions.of(table)
        staged = StagedFiles(access.bridge.spark, f"{self.root}/data", [] if partitions is None else partitions.folders)
        removed = self._upsert(access).write(table, partitions, staged)
        files, texts = files_in_snapshot(staged)
        return replace(self, files=files, partitions=texts, staging=staged.folder, removed=removed, snapshot=snapshot)

    def _still_fits(self, access: Access, table: Table) -> bool:
        """Whether the replaced files are still there, and no file that has come since has one of the keys."""
        if self.snapshot is None or table.snapshot_by_id(self.snapshot) is None:
            return False
        upsert = self._upsert(access)
        before = {one.path for one in files_of(table, self.snapshot, condition_of((), upsert.schema))}
        now = live_files(table)
        if not {one.path for one in now}.issuperset(self.removed):
            return False
        return not upsert.with_keys([one for one in now if one.path not in before], upsert.new_rows())

    def _upsert(self, access: Access) -> IcebergUpsert:
        return IcebergUpsert(access.bridge.spark, Key(self.key, f"table {self.table}"), self.rows, self._columns())

    def _columns(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.schema))

    def add_onto(self, access: Access, table: Table | None) -> None:
        """Add the snapshot after the table's current one."""
        if table is None:
            catalog = self.connect(access)
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            self._make_table(catalog)
            return
        replaced = {one.path: one for one in live_files(table)} if self.removed else {}
        with tried_once(table).transaction() as transaction:
            if not self.removed:
                self._fill(transaction, table, has_rows=self.snapshot is not None)
                return
            self._name_columns(transaction, table)
            with transaction.update_snapshot(snapshot_properties=self._told()).overwrite() as change:
                for path in self.removed:
                    change.delete_data_file(replaced[path].task.file)
                self._append(change, table)

    def undo(self, access: Access) -> None:
        """Remove the files, and the new rows; no snapshot names them."""
        super().undo(access)
        self.finish(access)

    def finish(self, access: Access) -> None:
        """Remove the folder of the new rows."""
        Folder(access.bridge, self.rows).delete()
