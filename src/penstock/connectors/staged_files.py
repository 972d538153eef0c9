"""Parquet files that Spark's tasks write into a table's folder, and that a later commit adds to the table."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.connectors.base import StageReport
from penstock.connectors.compaction import compact, report
from penstock.connectors.partition_commit import partition_values
from penstock.connectors.table_schema import quoted
from penstock.spark.dataframes import with_settings
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge
from penstock.spark.parquet import row_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""The timestamp type that table formats require."""
_UTC = {"spark.sql.session.timeZone": "UTC"}
"""The time zone of timestamps in folder names and in a table's log."""
_THREADS = 8


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A written file.

    Parameters
    ----------
    path
        Relative to the table's folder.
    size
        Its size in bytes.
    rows
        Its row count.
    partition
        The values of the partition columns as strings; None for null.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]


class StagedFiles:
    """The files that a job writes.

    Parameters
    ----------
    spark
        The session.
    root
        The table's folder.
    partition_by
        The partition columns, which become folders.
    """

    def __init__(self, spark: SparkSession, root: str, partition_by: Sequence[str]) -> None:
        self._bridge = Bridge(spark)
        self._root = Folder(self._bridge, root)
        self._folder = self._root.child(f"penstock-{uuid.uuid4().hex[:12]}")
        self.partition_by = tuple(partition_by)
        self._schema: StructType | None = None

    def write(self, df: DataFrame) -> None:
        """Write rows with Spark's tasks; `files` does not return files of failed attempts."""
        with with_settings(df, _UTC):  # a cast takes the time zone when it is created
            for name in self.partition_by:
                column = df[quoted(name)]
                if df.select(column).schema[0].dataType.typeName() == "timestamp":
                    df = df.withColumn(name, column.cast("string"))
        with with_settings(df, _SETTINGS):
            writer = df.write.mode("error")
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer.parquet(str(self._folder))
        self._schema = df.schema

    def sample(self, df: DataFrame) -> int:
        """Write sample rows into a separate folder, remove it, and return the bytes of its files."""
        folder = self._root.child(f"{self._folder.name}-sample")
        try:
            with with_settings(df, _SETTINGS):
                df.drop(*self.partition_by).write.mode("error").parquet(str(folder))
            return sum(size for _, size in folder.files_below())
        finally:
            folder.delete()

    def compact(self, spark: SparkSession, target: int) -> StageReport:
        """Merge small files before they become visible.

        Parameters
        ----------
        spark
            The session.
        target
            The target size of a file in bytes.
        """
        if self._schema is None:
            return StageReport("nothing", "nothing was written")
        with with_settings(spark, _SETTINGS):
            compaction = compact(spark, self._folder, "parquet", self._schema, self.partition_by, {}, target)
        return report(compaction, target)

    @property
    def root(self) -> str:
        """The table's folder."""
        return str(self._root)

    @property
    def folder(self) -> str:
        """The folder of the files."""
        return str(self._folder)

    def files(self) -> list[StagedFile]:
        """Return the written files, after forcing them to disk."""
        self._folder.sync()
        files = list(self._folder.files_below(unread=True))
        with ThreadPoolExecutor(_THREADS) as threads:
            rows = list(threads.map(lambda file: row_count(self._bridge, f"{self._folder}/{file[0]}"), files))
        return [
            StagedFile(f"{self._folder.name}/{path}", size, count, partition_values(path.rpartition("/")[0]))
            for (path, size), count in zip(files, rows, strict=True)
        ]

    def child(self, path: str) -> Folder:
        """Return a path within the table's folder."""
        return self._root.child(path)

    def files_in_folder(self) -> list[StagedFile]:
        """Return the written files with paths relative to `folder`."""
        return [replace(file, path=file.path.partition("/")[2]) for file in self.files()]

    def delete(self) -> None:
        """Remove all files."""
        self._folder.delete()
