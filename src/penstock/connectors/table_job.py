"""The writing of one job into a table of Spark's catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.commit.catalog_tables import PreparedTable
from penstock.connectors.base import SinkJob
from penstock.connectors.files import FileSink
from penstock.connectors.partition_commit import partition_clause, partition_values
from penstock.connectors.table_schema import as_nullable
from penstock.errors import SinkError
from penstock.spark.jvm import Bridge
from penstock.spark.table_writes import CatalogTable, TableWrite, statement_of, table_write
from penstock.spark_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Prepared
    from penstock.connectors.file_job import FileSinkJob


class TableSinkJob(SinkJob):
    """Writes the table's files as a `FileSink` does, and lets the catalogue hear of them in the same commit.

    Parameters
    ----------
    spark
        The session.
    table
        The table, as it is or as it will be.
    mode
        What is done with its files.
    options
        The options of a new table's files.
    token
        A name for the rows, or None.
    is_new
        Whether the table is not there yet.
    external
        Whether the user has said where a new table lies.
    shaped
        Whether the rows have the table's columns, in its order, already.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: CatalogTable,
        mode: str,
        options: Mapping[str, str],
        token: str | None,
        *,
        is_new: bool,
        external: bool = False,
        shaped: bool = False,
    ) -> None:
        self._spark = spark
        self._bridge = Bridge(spark)
        self._table = table
        self._mode = mode
        self._options = dict(options)
        self._token = token
        self._is_new = is_new
        self._external = external
        self._shaped = shaped
        self._schema: StructType | None = None
        self._files = self._opened()

    def _opened(self) -> FileSinkJob:
        table = self._table
        sink = FileSink(table.location, table.format, self._mode, table.partition_by, self._options, token=self._token)
        return sink.opened(self._spark)

    @property
    def nothing_to_write(self) -> str | None:
        """Why the table needs no rows."""
        return self._files.nothing_to_write

    def check(self, schema: StructType) -> None:
        """Refuse rows that the table cannot hold, as Spark does."""
        empty = self._spark.createDataFrame([], schema)
        if self._shaped or self._is_new:
            self._files.check(schema)
            return
        with in_words():
            written = self._write_of(empty)
        self._options = written.options
        self._files = self._opened()
        self._files.check(written.rows.schema)

    def _write_of(self, rows: DataFrame) -> TableWrite:
        what = "OVERWRITE TABLE" if self._mode == "overwrite" else "INTO"
        found = table_write(Bridge(rows.sparkSession), f"INSERT {what} {self._table.name} BY NAME SELECT 1", rows)
        if found is None:
            raise SinkError(
                f"table {self._table.name} cannot be written by TableSink",
                cause="its partitions lie in folders of their own, or it was changed while the job ran",
                hint="write it with Spark",
            )
        return found

    def write(self, df: DataFrame) -> None:
        """Write the rows into the hidden folder."""
        if self.nothing_to_write is not None:
            return
        shaped = df if self._shaped or self._is_new else self._write_of(df).rows
        self._schema = shaped.schema
        self._files.write(shaped)

    def restart(self) -> bool:
        """Remove what a write that failed has left."""
        return self._files.restart()

    def prepare(self) -> Prepared:
        """Look what has to be moved, and what the catalogue is to be told."""
        table, files = self._table, self._files.prepare()
        if self.nothing_to_write is not None:
            return files
        assert self._schema is not None
        folders = self._files.partitions if table.tracked else []
        add = f"ALTER TABLE {table.name} ADD IF NOT EXISTS PARTITION "
        schema = self._definition(self._schema)
        return PreparedTable(
            table.name,
            files.as_dict(),
            statement_of(table, self._options, schema) if self._is_new else "",
            schema.json() if self._is_new else "",
            self._external,
            tuple(add + partition_clause(partition_values(folder)) for folder in folders),
            table.tracked and self._mode == "overwrite" and not self._files.replaces_partitions,
        )

    def _definition(self, rows: StructType) -> StructType:
        """Return the columns of a new table: partition columns come last, and all may be null."""
        by = self._table.partition_by
        inside = [one for one in rows if one.name not in by]
        return as_nullable(type(rows)([*inside, *(rows[name] for name in by if name in rows.names)]))

    def abort(self) -> None:
        """Remove the hidden folder."""
        self._files.abort()

    def refresh(self) -> None:
        """Let cached readers see what was written, as Spark does after a write."""
        self._files.refresh()
        with_table = self._spark.catalog.tableExists(self._table.name)
        if with_table:
            self._spark.catalog.refreshTable(self._table.name)
