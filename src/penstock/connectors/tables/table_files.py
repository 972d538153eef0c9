"""The write of a job into a table of Parquet files: the code that Delta and Iceberg have in common."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.base.arguments import columns_of
from penstock.connectors.core.base import SinkJob, SinkOptions, StageReport, check_positive
from penstock.connectors.core.sink_checks import is_case_sensitive
from penstock.connectors.files.compaction import SizedFilesSink, compact, sample_bytes
from penstock.connectors.files.partition_commit import partition_values
from penstock.connectors.tables.commit import Key, check_mode
from penstock.connectors.tables.table_schema import as_nullable, cast_to_table, check_columns, quoted
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.io.parquet import row_count
from penstock.spark.plans.dataframes import with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PARQUET_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""The session setting for the timestamp type that table formats require."""
_UTC = {"spark.sql.session.timeZone": "UTC"}
"""The session time zone for timestamps in folder names and in a table's log."""
_FOOTER_THREADS = 8


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A written file; `path` is relative to `StagedFiles.root`, `size` is in bytes, and `rows` is the number of rows.

    `partition` has the values of the partition columns as strings; None for null.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]


class StagedFiles:
    """The files that a job writes into a staging folder in `root`, a folder of the table, with partition folders."""

    def __init__(self, spark: SparkSession, root: str, partition_by: Sequence[str]) -> None:
        self._bridge = Bridge(spark)
        self.root = HadoopPath(self._bridge, root)
        self._folder = self.root.child(f"penstock-{uuid.uuid4().hex[:12]}")
        self.folder = str(self._folder)
        self.partition_by = tuple(partition_by)
        self._schema: StructType | None = None

    def write(self, df: DataFrame) -> None:
        """Write rows with Spark's tasks; `files` returns no files of failed attempts."""
        with with_settings(df, _UTC):  # a cast retains the session's time zone at its creation
            for name in self.partition_by:
                column = df[quoted(name)]
                if df.select(column).schema[0].dataType.typeName() == "timestamp":
                    df = df.withColumn(name, column.cast("string"))
        with with_settings(df, _PARQUET_SETTINGS):
            writer = df.write.mode("error")
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer.parquet(self.folder)
        self._schema = df.schema

    def sample(self, df: DataFrame) -> int:
        """Write sample rows into a separate folder, remove it, and return the total bytes of its files."""
        folder = self.root.child(f"{self._folder.name}-sample")
        with with_settings(df, _PARQUET_SETTINGS):
            return sample_bytes(df, folder, "parquet", self.partition_by, {})

    def compact(self, spark: SparkSession, target_size: int) -> StageReport:
        """Merge small files before they become visible; `target_size` is the target size of a file in bytes."""
        with with_settings(spark, _PARQUET_SETTINGS):
            return compact(spark, self._folder, "parquet", self._schema, self.partition_by, {}, target_size)

    def files(self) -> list[StagedFile]:
        """Sync the written files to disk, and return them."""
        self._folder.sync()
        files = list(self._folder.files_below(dotted_partitions=True))
        with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
            rows = list(threads.map(lambda file: row_count(self._bridge, f"{self._folder}/{file[0]}"), files))
        return [
            StagedFile(f"{self._folder.name}/{path}", size, count, partition_values(path.rpartition("/")[0]))
            for (path, size), count in zip(files, rows, strict=True)
        ]

    def delete(self) -> None:
        """Remove all files."""
        self._folder.delete()


class TableFilesSink(SizedFilesSink):
    """A sink that writes Parquet files into a table; subclasses are data classes with `key` and `parallelism`."""

    key: str | Sequence[str]

    def _check_arguments(self, table: str) -> None:
        """Check the arguments that sinks of all table formats have; `table` is the table as the user names it."""
        object.__setattr__(self, "key", columns_of(self.key, f"key of sink {table}"))
        check_mode(self.mode, self.key)
        self._parse_file_size(f"sink {self.name}")
        check_positive(f"sink {table}", self.parallelism)

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the target size of files in bytes, see the base class; None for an upsert: Spark decides the sizes."""
        return None if self.mode == "upsert" else super().file_size(options)


SinkType = TypeVar("SinkType", bound=TableFilesSink)


@dataclass(eq=False)
class TableFilesJob(SinkJob, Generic[SinkType]):
    """The write of staged files, which the commit adds to the table; `_where` names the table in messages.

    `_columns` are the columns of the table; None if the rows define them. An upsert first stages its new rows in
    `_upsert_rows`. `_replaced_files` are the paths of the table's files that `_staged` replaces.
    """

    _spark: SparkSession
    _sink: SinkType
    _where: str
    _staged: StagedFiles
    _upsert_rows: StagedFiles
    _columns: StructType | None
    _schema: StructType | None = field(default=None, init=False)
    _replaced_files: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._is_case_sensitive = is_case_sensitive(self._spark)
        self.calls_python = self._sink.mode == "upsert"  # or runs further queries, see the base class

    def check(self, schema: StructType) -> None:
        """Reject rows that do not fit the columns of the table, and invalid key columns of an upsert."""
        if self._sink.mode == "upsert":
            self._key(self._columns or schema)
        if self._columns is not None:
            check_columns(schema, self._columns, self._where, case_sensitive=self._is_case_sensitive)

    def write(self, df: DataFrame) -> None:
        """Stage the rows; an upsert also rewrites the table's files that have rows with the same keys."""
        self.check(df.schema)
        if self._columns is not None:
            df = cast_to_table(df, self._columns, self._where, case_sensitive=self._is_case_sensitive)
        self._schema = as_nullable(df.schema)
        if self._sink.mode == "upsert":
            self._upsert_rows.write(df)
            self._replaced_files = self._upsert(df.sparkSession, self._schema)
        else:
            self._staged.write(self._with_folder_columns(df))

    def _with_folder_columns(self, df: DataFrame) -> DataFrame:
        """Return rows with the columns added whose values name the partition folders; by default unchanged."""
        return df

    @abstractmethod
    def _upsert(self, spark: SparkSession, schema: StructType) -> tuple[str, ...]:
        """Write the files of an upsert from the staged new rows; return the paths of the files that they replace."""

    def _key(self, schema: StructType) -> Key:
        columns = columns_of(self._sink.key, self._where)
        return Key.of(columns, schema, self._where, case_sensitive=self._is_case_sensitive)

    def _upsert_fields(self, schema: StructType, **additional: object) -> dict[str, Any]:
        """Return the fields that only the commit record of an upsert has, and `additional`; empty for other modes."""
        if self._sink.mode != "upsert":
            return {}
        key, rows_folder = self._key(schema).columns, self._upsert_rows.folder
        return {"key": key, "rows": rows_folder, "removed": self._replaced_files, **additional}

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The secrets of the sink."""
        return self._sink.secrets

    def sample_size(self, df: DataFrame) -> int:
        """Write sample rows into a separate folder, remove it, and return the total bytes of its files."""
        return self._staged.sample(df)

    def compact(self, target_size: int) -> StageReport:
        """Merge files that are smaller than half of `target_size`, the target size of a file in bytes."""
        return self._staged.compact(self._spark, target_size)

    def abort(self) -> None:
        """Remove the staged files and rows."""
        self._staged.delete()
        self._upsert_rows.delete()
