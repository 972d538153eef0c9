"""Source and sink of Delta tables. ``deltalake`` handles the transaction log, Spark reads and writes the rows."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.base.arguments import check_path, check_settings, check_type, columns_of
from penstock.base.masking import repr_without_secrets
from penstock.commit import location_of, recover_target
from penstock.connectors.core.base import (
    DataFrameScanProvider,
    NothingToWrite,
    ScanContext,
    already_written,
    check_positive,
)
from penstock.connectors.core.extras import absolute_path, require_module, without_secrets
from penstock.connectors.core.sink_checks import check_partition_columns
from penstock.connectors.core.timeouts import call_within_timeout
from penstock.connectors.delta.commit import (
    DeltaUpsert,
    PreparedDelta,
    PreparedDeltaUpsert,
    app_id,
    check_file_names,
    check_upsert,
    check_writable,
    list_files,
    table_at,
)
from penstock.connectors.delta.files import ESCAPED, DeltaColumns, DeltaFiles, files_of, spark_reads_partition
from penstock.connectors.tables.table_files import StagedFiles, TableFilesJob, TableFilesSink
from penstock.connectors.tables.table_schema import as_nullable
from penstock.errors import SinkError, SourceError
from penstock.spark.io.files import read_parquet
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from penstock.commit import Access, Prepared
    from penstock.connectors.core.base import SinkJob

log = logging.getLogger("penstock.sinks")

_UNREADABLE_TYPES = ("void", "interval", "day-time interval", "year-month interval", "time(")
"""Beginnings of the names of types that the log accepts, but no reader supports."""


@dataclass(frozen=True)
class DeltaSource(DataFrameScanProvider):
    """A version of a Delta table; files in its folder that the version does not reference are ignored.

    >>> env.write(spark.range(3), DeltaSink(f"{folder}/orders"))
    >>> job = env.execute()
    >>> env.count(env.read(DeltaSource(f"{folder}/orders", version=0)))
    3

    Parameters
    ----------
    path
        The table's folder.
    version
        The version; if None, the latest version when the source is created.
    parallelism
        The number of tasks; if None, inferred from the files.
    storage_options
        Options of ``deltalake`` for a log on an object store.
    """

    path: str
    version: int | None = None
    parallelism: int | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_path(self.path, "DeltaSource")
        check_type(self.version, (int, type(None)), "DeltaSource", "the number of a version")
        check_settings(self.storage_options, f"the storage options of table {self.path}")
        check_positive(f"table {self.path}", self.parallelism)
        object.__setattr__(self, "path", _absolute_path(self.path, SourceError))
        if self.version is None:
            object.__setattr__(self, "version", _open(self.path, None, self.storage_options).version())

    @property
    def name(self) -> str:
        """The path."""
        return self.path

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows of the version."""
        return self._rows(spark, None)

    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return the rows of the files that remain after skipping by partition values and statistics."""
        return self._rows(spark, context)

    def _rows(self, spark: SparkSession, context: ScanContext | None) -> DataFrame:
        """Return the needed rows; for `context` None, a relation of all rows, which a job replaces by its scan."""
        table = _open(self.path, self.version, self.storage_options)
        columns = DeltaColumns.of(table)
        files = files_of(table, () if context is None else context.predicates, columns)
        if not files:
            return spark.createDataFrame([], columns.schema)
        local_path = _local_path(self.path)
        root = table.table_uri.rstrip("/") if local_path is None else f"file:{local_path}"  # Hadoop does not decode %20
        spark_can_read = columns.mode != "id" and all(
            file.selection is None and spark_reads_partition(file, columns) for file in files
        )
        # `rename_to_logical` adds a projection, but without a context the result must be a relation.
        if spark_can_read and (columns.mode == "none" or context is not None):
            paths = [f"{root}/{file.path}" for file in files]
            return columns.rename_to_logical(read_parquet(spark, columns.physical_schema, paths, basePath=root))
        source = DeltaFiles(local_path or root, tuple(files), columns)
        return source.read(spark) if context is None else source.produce_data_frame(spark, context)


@dataclass(frozen=True)
class DeltaSink(TableFilesSink):
    """A Delta table; a job adds its rows in a single commit.

    >>> DeltaSink("lake/orders", mode="upsert", key="id").name
    'orders'

    Parameters
    ----------
    path
        The table's folder; created by the first commit.
    mode
        ``append``, ``overwrite``, or ``upsert``: a new row replaces the row of the table with the same key, if any.
    key
        The key columns of an ``upsert``. They must not be null, and must be unique among the new rows.
    partition_by
        The partition columns of a new table: a list, or a single name.
    parallelism
        The number of writing tasks; if None, the tasks that compute the rows write them.
    storage_options
        Options of ``deltalake`` for a log on an object store.
    token
        An idempotency token for these rows, as in `FileSink`. The table's log stores it (as a ``txn`` of Delta's
        protocol).
    target_file_size, auto_compaction
        As in `FileSink`; upserts leave the file size to Spark.
    """

    path: str
    mode: str = "append"
    partition_by: str | Sequence[str] = ()
    parallelism: int | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str | None = None
    key: str | Sequence[str] = ()
    target_file_size: int | str | None = None
    auto_compaction: bool | None = None

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_path(self.path, "DeltaSink")
        self._check_arguments(self.path)
        check_settings(self.storage_options, f"the storage options of table {self.path}")
        object.__setattr__(self, "partition_by", columns_of(self.partition_by, f"partition_by of sink {self.path}"))
        object.__setattr__(self, "path", _absolute_path(self.path, SinkError))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def location(self) -> str:
        """The table's folder."""
        return location_of(self.path)

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The storage options, by path."""
        return {self.path: dict(self.storage_options)}

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns: those of the table if it exists, else `partition_by`."""
        require_module("deltalake", "delta", SinkError)
        table = table_at(self.path, self.storage_options)
        return columns_of(self.partition_by, self.path) if table is None else table.metadata().partition_columns

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        recover_target(access, HadoopPath(access.bridge, self.path))

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the table if it exists; return a job that writes nothing if the log already has the sink's token."""
        require_module("deltalake", "delta", SinkError)
        from deltalake import DeltaTable

        partition_by, log_schema, version = columns_of(self.partition_by, self.path), None, None
        if DeltaTable.is_deltatable(self.path, dict(self.storage_options) or None):
            table = _open(self.path, None, self.storage_options)
            if self.token is not None and table.transaction_version(app_id(self.token)) is not None:
                log.warning("%s already has the rows of token %s, nothing is written", self.path, self.token)
                return NothingToWrite(already_written(self.token))
            version = table.version()
            check_writable(table, self.path, self.mode)
            if self.mode == "overwrite":
                check_file_names(table, self.path)
            if self.mode == "upsert":
                check_upsert(table, self.path)
            table_partition_by = tuple(table.metadata().partition_columns)
            if partition_by and partition_by != table_partition_by:
                raise SinkError(f"table {self.path} is partitioned by {table_partition_by}, not by {partition_by}")
            partition_by = table_partition_by
            log_schema = None if self.mode == "overwrite" else table.schema().to_json()
            overwrite_mode = str(spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")).lower()
            if self.mode == "overwrite" and partition_by and overwrite_mode == "dynamic":
                raise SinkError(
                    f"single partitions of table {self.path} cannot be overwritten",
                    cause="spark.sql.sources.partitionOverwriteMode is dynamic",
                    hint="set it to static to replace the whole table",
                )
        staged = StagedFiles(spark, self.path, partition_by)
        if self.path.startswith("/") and not str(staged.root).startswith("file:"):
            raise SinkError(
                f"{self.path} is ambiguous",
                cause=f"Spark resolves it to {staged.root}, deltalake to a local path",
                hint="give the whole URI",
            )
        upsert_rows = StagedFiles(spark, self.path, ())
        columns = None if log_schema is None else StructType.fromJson(json.loads(log_schema))
        return _DeltaSinkJob(spark, self, f"table {self.path}", staged, upsert_rows, columns, log_schema, version)


@dataclass(eq=False)
class _DeltaSinkJob(TableFilesJob[DeltaSink]):
    """Write staged files, and add them to the log.

    `_log_schema` is the schema of the existing table as JSON, as the log stores it; None if the rows define the schema.
    `_version` is the version of the table, None if the table does not exist.
    """

    _log_schema: str | None
    _version: int | None

    def check(self, schema: StructType) -> None:
        from deltalake import Schema

        check_partition_columns(self._spark, schema, self._staged.partition_by, self._where)
        super().check(schema)
        if self._columns is not None:
            return
        unsupported = [field for field in schema if field.dataType.typeName().startswith(_UNREADABLE_TYPES)]
        try:
            Schema.from_json(as_nullable(schema).json())
        except Exception as error:
            raise SinkError(f"{self._where} cannot hold the rows", cause=str(error), hint="cast the column") from error
        if unsupported:
            column, type_name = unsupported[0].name, unsupported[0].dataType.simpleString()
            raise SinkError(f"column {column} for {self._where} is of type {type_name}", hint="cast or drop it")

    def _upsert(self, spark: SparkSession, schema: StructType) -> tuple[str, ...]:
        table = table_at(self._sink.path, self._sink.storage_options)
        if table is not None:
            check_upsert(table, self._sink.path)
            self._version = table.version()
        upsert = DeltaUpsert(spark, self._key(schema), self._upsert_rows.folder, schema, str(self._staged.root))
        return upsert.write(table, self._staged)

    def prepare(self) -> Prepared:
        assert self._schema is not None
        sink, staged = self._sink, self._staged
        record_type = PreparedDeltaUpsert if sink.mode == "upsert" else PreparedDelta
        return record_type(
            path=sink.path,
            root=str(staged.root),
            mode=sink.mode,
            schema=self._log_schema or self._schema.json(),
            partition_by=staged.partition_by,
            files=list_files(staged),
            staging=staged.folder,
            version=self._version,
            receipt=uuid.uuid4().hex,
            token=sink.token,
            options=without_secrets(sink.storage_options),
            **self._upsert_fields(self._schema),
        )


def _local_path(path: str) -> str | None:
    """Return a path on the local file system without its scheme; None if the path is not on this file system."""
    plain = path.removeprefix("file:")
    return os.path.normpath(f"/{plain.lstrip('/')}") if plain.startswith("/") else None


def _absolute_path(path: str, error: type[SourceError | SinkError]) -> str:
    """Return the absolute path of a table; raise an error of the class `error` if deltalake would misread the path."""
    path = absolute_path(path)
    escaped = ESCAPED.search(path)
    if _local_path(path) is not None and escaped is not None:
        raise error(
            f"table {path} cannot be reached",
            cause=f"its path contains {escaped[0]}, which deltalake interprets as another character",
            hint="use that character itself in the path, or rename the folder",
        )
    return path


def _open(path: str, version: int | None, storage_options: Mapping[str, str]) -> DeltaTable:
    require_module("deltalake", "delta", SourceError)
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        request = "asking for its transaction log"
        table = call_within_timeout(path, request, lambda: DeltaTable(path, version, dict(storage_options) or None))
    except TableNotFoundError as error:
        raise SourceError(
            f"{path} is not a Delta table", cause="it has no transaction log", hint="check the path"
        ) from error
    return table
