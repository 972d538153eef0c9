"""Source and sink of Delta tables. ``deltalake`` handles the transaction log, Spark reads and writes the rows."""

from __future__ import annotations

import json
import logging
import os
import re
import uuid
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from penstock.arguments import check_path, check_settings, check_type, columns_of
from penstock.commit import location_of, recover_target
from penstock.connectors.base import (
    DataFrameScanProvider,
    NothingToWrite,
    ScanContext,
    SinkJob,
    SinkOptions,
    StageReport,
    checked_parallelism,
)
from penstock.connectors.delta_checks import check_writable
from penstock.connectors.delta_columns import DeltaColumns
from penstock.connectors.delta_commit import PreparedDelta, app_id, check_names, record_files, table_at
from penstock.connectors.delta_files import DeltaFiles, files_of, spark_reads_partition
from penstock.connectors.delta_upsert import DeltaUpsert, PreparedDeltaUpsert, check_upsert
from penstock.connectors.extras import absolute, needs, without_secrets
from penstock.connectors.sink_checks import check_partition_columns, is_case_sensitive
from penstock.connectors.sized_table import SizedTable
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.table_schema import as_nullable, check_columns, in_shape_of
from penstock.connectors.timeouts import call_within_timeout
from penstock.connectors.upsert import Key, check_key_matches_mode
from penstock.errors import SinkError, SourceError
from penstock.masking import repr_without_secrets
from penstock.spark.files import read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared

log = logging.getLogger("penstock.sinks")

_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
MODES = ("append", "overwrite", "upsert")
_UNSUPPORTED = ("void", "interval", "day-time interval", "year-month interval", "time(")
"""Types that the log accepts, but no reader supports."""


@dataclass(frozen=True)
class DeltaSource(DataFrameScanProvider):
    """A version of a Delta table; files in its folder that the version does not reference are ignored.

    Parameters
    ----------
    path
        The table's folder.
    version
        The version; if None, the latest at planning time.
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
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"table {self.path}")
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
        """Return the rows of a job's scan; with `context` None, a relation that the job replaces by its scan."""
        table = _open(self.path, self.version, self.storage_options)
        columns = DeltaColumns.of(table)
        files = files_of(table, () if context is None else context.predicates, columns)
        if not files:
            return spark.createDataFrame([], columns.schema)
        local = _local(self.path)
        root = table.table_uri.rstrip("/") if local is None else f"file:{local}"  # Hadoop does not decode %20
        is_plain = columns.mode != "id" and all(
            file.selection is None and spark_reads_partition(file, columns) for file in files
        )
        if is_plain and (columns.mode == "none" or context is not None):
            paths = [f"{root}/{file.path}" for file in files]
            return columns.rename_to_logical(read_parquet(spark, columns.physical_schema, paths, basePath=root))
        source = DeltaFiles(local or root, tuple(files), columns)
        return source.read(spark) if context is None else source.produce_data_frame(spark, context)


@dataclass(frozen=True)
class DeltaSink(SizedTable):
    """A Delta table; a job adds its rows in a single commit.

    Parameters
    ----------
    path
        The table's folder; created by the first commit.
    mode
        ``append``, ``overwrite`` or ``upsert``, which replaces rows of the table with the same key, and adds others.
    key
        The key columns of an ``upsert``. They must not be null, and must be unique among the new rows.
    partition_by
        The partition columns of a new table: a list, or a single name.
    parallelism
        The number of writing tasks; if None, the tasks that compute the rows write them.
    storage_options
        Options of ``deltalake`` for a log on an object store.
    token
        An idempotency token for these rows, such as the day of a daily load. The table's log stores it (as a ``txn`` of
        Delta's protocol). If the log has it already, the job writes nothing. So a job whose driver died can be repeated
        at any time, and the table has the rows once.
    target_file_size
        The target size of a file on disk, in bytes or as a string such as ``"128 mb"``. If None, the option
        ``sink.target-file-size`` applies if there are partition columns; else each task writes a file. Upserts leave
        the file size to Spark.
    auto_compaction
        Whether files of at most half the target size are merged within their partition before they become visible.
        If None, the option ``sink.auto-compaction`` applies.
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
        if self.mode not in MODES:
            raise SinkError(f"mode {self.mode!r} is not valid", hint=f"give one of {', '.join(MODES)}")
        object.__setattr__(self, "key", columns_of(self.key, f"key of sink {self.path}"))
        check_key_matches_mode(self.mode, self.key)
        self._check_file_size()
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"sink {self.path}")
        check_path(self.path, "DeltaSink")
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
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The storage options."""
        return {self.path: dict(self.storage_options)}

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns: those of the table if it exists, else `partition_by`."""
        needs("deltalake", "delta", SinkError)
        table = table_at(self.path, self.storage_options)
        return columns_of(self.partition_by, self.path) if table is None else table.metadata().partition_columns

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the target size of a file in bytes, None if the upstream tasks write the files themselves."""
        return None if self.mode == "upsert" else super().file_size(options)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        recover_target(access, Folder(access.bridge, self.path))

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the table if it exists, and whether its log has the job's token already."""
        needs("deltalake", "delta", SinkError)
        from deltalake import DeltaTable

        partition_by, columns, version = columns_of(self.partition_by, self.path), None, None
        if DeltaTable.is_deltatable(self.path, dict(self.storage_options) or None):
            table = _open(self.path, None, self.storage_options)
            if self.token is not None and table.transaction_version(app_id(self.token)) is not None:
                log.warning("%s holds %s already, nothing is written", self.path, self.token)
                return NothingToWrite(self.token)
            version = table.version()
            check_writable(table, self.path, self.mode)
            if self.mode == "overwrite":
                check_names(table, self.path)
            if self.mode == "upsert":
                check_upsert(table, self.path)
            actual = tuple(table.metadata().partition_columns)
            if partition_by and partition_by != actual:
                raise SinkError(f"table {self.path} is partitioned by {actual}, not by {partition_by}")
            partition_by = actual
            columns = None if self.mode == "overwrite" else table.schema().to_json()
            overwrite_mode = str(spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")).lower()
            if self.mode == "overwrite" and actual and overwrite_mode == "dynamic":
                raise SinkError(
                    f"single partitions of table {self.path} cannot be overwritten",
                    cause="spark.sql.sources.partitionOverwriteMode is dynamic",
                    hint="set it to static to replace the whole table",
                )
        staged = StagedFiles(spark, self.path, partition_by)
        if self.path.startswith("/") and not staged.root.startswith("file:"):
            raise SinkError(
                f"{self.path} is ambiguous",
                cause=f"Spark resolves it to {staged.root}, deltalake to a local path",
                hint="give the whole URI",
            )
        return _DeltaSinkJob(spark, self, staged, columns, version)


class _DeltaSinkJob(SinkJob):
    """Write staged files, and add them to the log.

    Parameters
    ----------
    columns
        The schema of the existing table as JSON of the log; None if the rows define the schema.
    version
        The version of the table; None if it does not exist.
    """

    def __init__(
        self, spark: SparkSession, sink: DeltaSink, staged: StagedFiles, columns: str | None, version: int | None
    ) -> None:
        from pyspark.sql.types import StructType

        self._spark = spark
        self._sink = sink
        self._staged = staged
        self._columns = columns
        self._version = version
        self._table = None if columns is None else StructType.fromJson(json.loads(columns))
        self._is_case_sensitive = is_case_sensitive(spark)
        self._schema = ""
        self._rows = StagedFiles(spark, sink.path, ())
        self.calls_python = sink.mode == "upsert"  # an upsert also runs queries over the table's rows
        self._removed: tuple[str, ...] = ()

    def check(self, schema: StructType) -> None:
        from deltalake import Schema

        where = f"table {self._sink.path}"
        check_partition_columns(self._spark, schema, self._staged.partition_by, where)
        if self._sink.mode == "upsert":
            self._key(self._table or schema)
        if self._table is not None:
            check_columns(schema, self._table, where, case_sensitive=self._is_case_sensitive)
            return
        unsupported = [field for field in schema if field.dataType.typeName().startswith(_UNSUPPORTED)]
        try:
            Schema.from_json(as_nullable(schema).json())
        except Exception as error:
            raise SinkError(f"{where} cannot hold the rows", cause=str(error), hint="cast the column") from error
        if unsupported:
            kind = unsupported[0].dataType.simpleString()
            raise SinkError(f"column {unsupported[0].name} for {where} is of type {kind}", hint="cast or drop it")

    def write(self, df: DataFrame) -> None:
        self.check(df.schema)
        if self._table is not None:
            where = f"table {self._sink.path}"
            df = in_shape_of(df, self._table, where, case_sensitive=self._is_case_sensitive)
        self._schema = self._columns or as_nullable(df.schema).json()
        if self._sink.mode == "upsert":
            self._upsert(df)
        else:
            self._staged.write(df)

    def _upsert(self, df: DataFrame) -> None:
        """Stage the new rows, and rewrite the files whose rows they replace."""
        self._rows.write(df)
        sink, schema = self._sink, as_nullable(df.schema)
        table = table_at(sink.path, sink.storage_options)
        if table is not None:
            check_upsert(table, sink.path)
            self._version = table.version()
        upsert = DeltaUpsert(df.sparkSession, self._key(schema), self._rows.folder, schema, self._staged.root)
        self._removed = upsert.write(table, self._staged)

    def _key(self, schema: StructType) -> Key:
        where, columns = f"table {self._sink.path}", columns_of(self._sink.key, self._sink.path)
        return Key.of(columns, schema, where, case_sensitive=self._is_case_sensitive)

    def prepare(self) -> Prepared:
        """Return the record of the staged files."""
        sink = self._sink
        record = PreparedDelta(
            sink.path,
            self._staged.root,
            sink.mode,
            self._schema,
            tuple(self._staged.partition_by),
            record_files(self._staged),
            self._staged.folder,
            self._version,
            uuid.uuid4().hex,
            sink.token,
            without_secrets(sink.storage_options),
        )
        if sink.mode != "upsert":
            return record
        from pyspark.sql.types import StructType

        key = self._key(StructType.fromJson(json.loads(self._schema))).columns
        common = {field.name: getattr(record, field.name) for field in fields(record)}
        return PreparedDeltaUpsert(**common, key=key, rows=self._rows.folder, removed=self._removed)

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The storage options."""
        return self._sink.secrets

    def sample_size(self, df: DataFrame) -> int:
        """Write sample rows into a separate folder, remove it, and return the bytes of its files."""
        return self._staged.sample(df)

    def compact(self, target: int) -> StageReport:
        """Merge small files."""
        return self._staged.compact(self._spark, target)

    def abort(self) -> None:
        self._staged.delete()
        self._rows.delete()


def _local(path: str) -> str | None:
    """Return a path of the local file system without its scheme; None for other file systems."""
    plain = path.removeprefix("file:")
    return os.path.normpath(f"/{plain.lstrip('/')}") if plain.startswith("/") else None


def _absolute_path(path: str, error: type[SourceError | SinkError]) -> str:
    """Return a table's path, made independent of the working directory."""
    path = absolute(path)
    escaped = _ESCAPED.search(path)
    if _local(path) is not None and escaped is not None:
        raise error(
            f"table {path} cannot be reached",
            cause=f"its path holds {escaped[0]}, which deltalake takes for another character",
            hint="write the character itself, or rename the folder",
        )
    return path


def _open(path: str, version: int | None, storage_options: Mapping[str, str]) -> DeltaTable:
    needs("deltalake", "delta", SourceError)
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
