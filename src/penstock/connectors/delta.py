"""Delta tables, read and written by their transaction log (``deltalake``); the rows themselves go through Spark."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.arguments import check_path, check_settings, check_type, columns_of
from penstock.commit import place_of, recover_target
from penstock.connectors.base import (
    DataFrameScanProvider,
    NothingToWrite,
    ScanContext,
    Sink,
    SinkJob,
    checked_parallelism,
)
from penstock.connectors.delta_commit import PreparedDelta, app_id
from penstock.connectors.extras import absolute, needs, without_secrets
from penstock.connectors.predicates import ColumnStatistics, Predicate, might_match
from penstock.connectors.sink_checks import check_partition_columns
from penstock.connectors.split_source import SplitSource, arrow_schema, with_partition
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.table_schema import as_nullable, check_columns, in_shape_of
from penstock.connectors.timeouts import answered
from penstock.errors import SinkError, SourceError
from penstock.spark.files import read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared

log = logging.getLogger("penstock.sinks")

_REFUSED = {
    "deletionVectors": "rows are deleted by deletion vectors",
    "columnMapping": "columns have other names in the files",
}
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_CERTAIN = 32
"""Statistics of longer texts may be cut off."""
MODES = ("append", "overwrite")
_PROMISES = ("delta.invariants", "delta.generationExpression", "delta.identity")
_NOT_IN_DELTA = ("void", "interval", "day-time interval", "year-month interval", "time(")
"""Types that the log takes, and no reader knows."""


@dataclass(frozen=True)
class DeltaSource(DataFrameScanProvider):
    """A Delta table, as one version of its log tells it: never what else lies in its folder.

    Parameters
    ----------
    path
        The table's folder.
    version
        The version; if None, the newest when the plan is made.
    parallelism
        The number of tasks, instead of what the files suggest.
    storage_options
        For ``deltalake``, to reach the log on an object store.
    """

    path: str
    version: int | None = None
    parallelism: int | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_path(self.path, "DeltaSource")
        check_type(self.version, (int, type(None)), "DeltaSource", "the number of a version")
        check_settings(self.storage_options, f"the storage options of table {self.path}")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"table {self.path}")
        object.__setattr__(self, "path", _located(self.path, SourceError))
        if self.version is None:
            object.__setattr__(self, "version", _open(self.path, None, self.storage_options).version())

    @property
    def name(self) -> str:
        """The path."""
        return self.path

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows of the version."""
        return self.produce_data_frame(spark, ScanContext(1, 1))

    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return the files whose partition and statistics leave it open that rows matter."""
        from pyspark.sql.types import StructType

        table = _open(self.path, self.version, self.storage_options)
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        files = _files(table, context.predicates, schema)
        if not files:
            return spark.createDataFrame([], schema)
        local = _local(self.path)
        root = table.table_uri.rstrip("/") if local is None else f"file:{local}"  # Hadoop takes %20 by its letters
        if all(_spark_finds(file) for file in files):
            paths = [f"{root}/{file.path}" for file in files]
            return read_parquet(spark, schema, paths, basePath=root)
        return _DeltaFiles(local or root, tuple(files), schema).produce_data_frame(spark, context)


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of a version.

    Parameters
    ----------
    path
        Relative to the table's folder.
    size
        Its bytes.
    partition
        The values of the partition columns.
    """

    path: str
    size: int
    partition: Mapping[str, Any]


class _DeltaFiles(SplitSource):
    """Files whose folders do not tell their partition as Spark would read it."""

    def __init__(self, root: str, files: Sequence[DeltaFile], schema: StructType) -> None:
        self._root = root
        self._files = files
        self._schema = schema

    @property
    def schema(self) -> StructType:
        return self._schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[DeltaFile]:  # noqa: ARG002
        return self._files

    def split_size(self, split: DeltaFile) -> int:
        return split.size

    def read_split(self, split: DeltaFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyarrow import fs, parquet

        wanted = arrow_schema(self._schema, columns)
        system, path = fs.FileSystem.from_uri(self._root)
        with parquet.ParquetFile(f"{path.rstrip('/')}/{split.path}", filesystem=system) as file:
            for batch in file.iter_batches(columns=[name for name in columns if name not in split.partition]):
                yield with_partition(batch, wanted, split.partition)


def _files(table: DeltaTable, predicates: Sequence[Predicate], schema: StructType) -> list[DeltaFile]:
    """Return the files of a version that may hold rows that matter."""
    import pyarrow as pa

    kept = []
    by = table.metadata().partition_columns
    columns = {column for predicate in predicates for column in predicate.columns()}
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        statistics = {name: found for name in columns if (found := _statistics(action, name, schema)) is not None}
        if all(might_match(predicate, statistics) for predicate in predicates):
            partition = {column: action[f"partition.{column}"] for column in by}
            kept.append(DeltaFile(unquote(action["path"]), action["size_bytes"], partition))
    return kept


def _spark_finds(file: DeltaFile) -> bool:
    """Whether Spark reads the partition of a file off the names of its folders: it unescapes them byte by byte."""
    named = dict(part.split("=", 1) for part in file.path.split("/")[:-1] if "=" in part)
    for column, value in file.partition.items():
        told = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), named.get(column, ""))
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            return False  # the log's times are UTC, and Spark would take them for times of the session's zone
        if column not in named or (isinstance(value, str) and told != value) or (value is None) != (told == _NO_VALUE):
            return False
    return True


def _statistics(action: Mapping[str, Any], column: str, schema: StructType) -> ColumnStatistics | None:
    """Return what the log tells of a column in one file; None where Spark's order may be another than the log's."""
    if column not in schema.fieldNames():
        return None
    kind = schema[column].dataType.typeName()
    if f"partition.{column}" in action:
        value = action[f"partition.{column}"]
        rows = action.get("num_records")
        return ColumnStatistics(value, value, rows if value is None else 0, rows)
    low, high = action.get(f"min.{column}"), action.get(f"max.{column}")
    if kind in {"float", "double"} or isinstance(low, dt.datetime):
        low = high = None
    if isinstance(high, str) and len(high) >= _CERTAIN:
        high = None
    return ColumnStatistics(low, high, action.get(f"null_count.{column}"), action.get("num_records"))


@dataclass(frozen=True)
class DeltaSink(Sink):
    """A Delta table; what a job writes appears in one commit.

    Parameters
    ----------
    path
        The table's folder; made with the first commit.
    mode
        ``append`` or ``overwrite``.
    partition_by
        Columns that become folders, of a new table: a list, or the name of one.
    parallelism
        The number of tasks that write; if None, the tasks that make the rows.
    storage_options
        For ``deltalake``, to reach the log on an object store.
    token
        A name that you give to these rows, such as the day of a daily load. The table's log keeps it (as a ``txn`` of
        Delta's protocol). If the log has it, the job writes nothing here. So a job whose driver died can run again at
        any time, and the table has the rows once.
    """

    path: str
    mode: str = "append"
    partition_by: str | Sequence[str] = ()
    parallelism: int | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise SinkError(f"mode {self.mode!r} is not known", hint=f"give one of {', '.join(MODES)}")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"sink {self.path}")
        check_path(self.path, "DeltaSink")
        check_settings(self.storage_options, f"the storage options of table {self.path}")
        object.__setattr__(self, "partition_by", columns_of(self.partition_by, f"partition_by of sink {self.path}"))
        object.__setattr__(self, "path", _located(self.path, SinkError))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def place(self) -> str:
        """The table's folder."""
        return place_of(self.path)

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The storage options."""
        return {self.path: dict(self.storage_options)}

    def recover(self, access: Access) -> None:
        """Complete or take back what a dead process has left half-way."""
        recover_target(access, Folder(access.bridge, self.path))

    def open(self, spark: SparkSession) -> SinkJob:
        """Look at the table, if there is one, and whether the job's token is in its log."""
        needs("deltalake", "delta", SinkError)
        from deltalake import DeltaTable

        partition_by, columns, version = columns_of(self.partition_by, self.path), None, None
        if DeltaTable.is_deltatable(self.path, dict(self.storage_options) or None):
            table = _open(self.path, None, self.storage_options)
            if self.token is not None and table.transaction_version(app_id(self.token)) is not None:
                log.warning("%s holds %s already, nothing is written", self.path, self.token)
                return NothingToWrite(self.token)
            version = table.version()
            _refuse_what_is_not_kept(table, self.path)
            found = tuple(table.metadata().partition_columns)
            if partition_by and partition_by != found:
                raise SinkError(f"table {self.path} is partitioned by {found}, not by {partition_by}")
            partition_by = found
            columns = table.schema().to_json() if self.mode == "append" else None
            overwritten = str(spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")).lower()
            if self.mode == "overwrite" and found and overwritten == "dynamic":
                raise SinkError(
                    f"single partitions of table {self.path} cannot be overwritten",
                    cause="spark.sql.sources.partitionOverwriteMode is dynamic",
                    hint="set it to static to replace the whole table",
                )
        staged = StagedFiles(spark, self.path, partition_by)
        if self.path.startswith("/") and not staged.root.startswith("file:"):
            raise SinkError(
                f"{self.path} is two places",
                cause=f"Spark takes it for {staged.root}, deltalake for a path of this machine",
                hint="give the whole URI",
            )
        return _DeltaSinkJob(spark, self, staged, columns, version)


class _DeltaSinkJob(SinkJob):
    """Stages files, and names them in the log.

    Parameters
    ----------
    columns
        The schema of the table that is appended to, as the log has it; None where rows bring theirs.
    version
        The version of the table; None where there is none.
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
        self._is_case_sensitive = str(spark.conf.get("spark.sql.caseSensitive", "false")) == "true"
        self._schema = ""

    def check(self, schema: StructType) -> None:
        from deltalake import Schema

        where = f"table {self._sink.path}"
        check_partition_columns(self._spark, schema, self._staged.partition_by, where)
        if self._table is not None:
            check_columns(schema, self._table, where, case_sensitive=self._is_case_sensitive)
            return
        refused = [field for field in schema if field.dataType.typeName().startswith(_NOT_IN_DELTA)]
        try:
            Schema.from_json(as_nullable(schema).json())
        except Exception as error:
            raise SinkError(f"{where} cannot hold the rows", cause=str(error), hint="cast the column") from error
        if refused:
            kind = refused[0].dataType.simpleString()
            raise SinkError(f"column {refused[0].name} for {where} is of type {kind}", hint="cast or drop it")

    def write(self, df: DataFrame) -> None:
        self.check(df.schema)
        if self._table is not None:
            where = f"table {self._sink.path}"
            df = in_shape_of(df, self._table, where, case_sensitive=self._is_case_sensitive)
        self._schema = self._columns or as_nullable(df.schema).json()
        self._staged.write(df)

    def prepare(self) -> Prepared:
        """Look which files there are."""
        sink, files = self._sink, self._staged.places()
        return PreparedDelta(
            sink.path,
            self._staged.root,
            sink.mode,
            self._schema,
            tuple(self._staged.partition_by),
            tuple((one.path, one.size, one.rows, tuple(one.partition.items())) for one in files),
            self._staged.folder,
            self._version,
            uuid.uuid4().hex,
            sink.token,
            without_secrets(sink.storage_options),
        )

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The storage options."""
        return self._sink.secrets

    def abort(self) -> None:
        self._staged.delete()


def _refuse_what_is_not_kept(table: DeltaTable, path: str) -> None:
    """Refuse to write to a table whose log promises more of its rows than is looked after here."""
    promised = [key for key in table.metadata().configuration if key.startswith("delta.constraints.")]
    for column in json.loads(table.schema().to_json())["fields"]:
        promised += [f"{key} of {column['name']}" for key in column["metadata"] if key.startswith(_PROMISES)]
    if promised:
        raise SinkError(
            f"table {path} cannot be written",
            cause=f"Penstock does not maintain {promised[0]}",
            hint="write it with Delta Lake itself",
        )


def _local(path: str) -> str | None:
    """Return a path of this machine's file system without its scheme; None of others."""
    plain = path.removeprefix("file:")
    return os.path.normpath(f"/{plain.lstrip('/')}") if plain.startswith("/") else None


def _located(path: str, error: type[SourceError | SinkError]) -> str:
    """Return where a table is, whatever the working directory is later."""
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
        what = "asking for its transaction log"
        table = answered(path, what, lambda: DeltaTable(path, version, dict(storage_options) or None))
    except TableNotFoundError as error:
        raise SourceError(
            f"{path} is not a Delta table", cause="it has no transaction log", hint="check the path"
        ) from error
    used = {*(table.protocol().reader_features or ())}
    if str(table.metadata().configuration.get("delta.columnMapping.mode", "none")) != "none":
        used.add("columnMapping")
    for feature in sorted(used & _REFUSED.keys()):
        raise SourceError(
            f"table {path} uses {feature}, which is not supported",
            cause=_REFUSED[feature],
            hint="rewrite the table without it, or read it with another connector",
        )
    return table
