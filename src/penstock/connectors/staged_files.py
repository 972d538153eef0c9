"""Parquet files written by Spark's tasks into a table's own folder, to be named by one commit later."""

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
"""Table formats know no other timestamps."""
_UTC = {"spark.sql.session.timeZone": "UTC"}
"""The zone of the times in the names of folders, and in a table's log."""
_SIDE_BY_SIDE = 8


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that was written.

    Parameters
    ----------
    path
        Relative to the table's folder.
    size
        Its bytes.
    rows
        Its rows.
    partition
        The values of the partition columns, as texts; None for null.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]


class StagedFiles:
    """The files of one job.

    Parameters
    ----------
    spark
        The session.
    root
        The table's folder.
    partition_by
        Columns that become folders.
    """

    def __init__(self, spark: SparkSession, root: str, partition_by: Sequence[str]) -> None:
        self._bridge = Bridge(spark)
        self._root = Folder(self._bridge, root)
        self._folder = self._root.child(f"penstock-{uuid.uuid4().hex[:12]}")
        self.partition_by = tuple(partition_by)
        self._schema: StructType | None = None

    def write(self, df: DataFrame) -> None:
        """Write rows, by Spark's tasks; a file of a failed attempt is not among `files`."""
        with with_settings(df, _UTC):  # when a column is made, its zone is settled
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
        """Return the bytes that some rows take; they are written aside, and removed."""
        folder = self._root.child(f"{self._folder.name}-sample")
        try:
            with with_settings(df, _SETTINGS):
                df.drop(*self.partition_by).write.mode("error").parquet(str(folder))
            return sum(size for _, size in folder.files_below())
        finally:
            folder.delete()

    def compact(self, spark: SparkSession, target: int) -> StageReport:
        """Merge small files, before any reader knows them.

        Parameters
        ----------
        spark
            The session.
        target
            The bytes a file should have.
        """
        if self._schema is None:
            return StageReport("nothing", "nothing was written")
        with with_settings(spark, _SETTINGS):
            done = compact(spark, self._folder, "parquet", self._schema, self.partition_by, {}, target)
        return report(done, target)

    @property
    def root(self) -> str:
        """The table's folder."""
        return str(self._root)

    @property
    def folder(self) -> str:
        """Where the files lie."""
        return str(self._folder)

    def files(self) -> list[StagedFile]:
        """Return what was written, which survives a loss of power from here on."""
        self._folder.sync()
        found = list(self._folder.files_below(unread=True))
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
            rows = list(threads.map(lambda one: row_count(self._bridge, f"{self._folder}/{one[0]}"), found))
        return [
            StagedFile(f"{self._folder.name}/{path}", size, count, partition_values(path.rpartition("/")[0]))
            for (path, size), count in zip(found, rows, strict=True)
        ]

    def child(self, path: str) -> Folder:
        """Return a path within the table's folder."""
        return self._root.child(path)

    def places(self) -> list[StagedFile]:
        """Return what was written by paths relative to `folder`, which are those it has among the table's files."""
        return [replace(one, path=one.path.partition("/")[2]) for one in self.files()]

    def delete(self) -> None:
        """Remove all files."""
        self._folder.delete()
