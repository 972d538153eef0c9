"""The writing of one job into a table of Spark's catalogue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.commit.catalog_tables import PreparedTable
from penstock.connectors.base import SinkJob, StageReport
from penstock.connectors.files import FileSink
from penstock.connectors.partition_commit import METASTORE
from penstock.connectors.sink_checks import check_partition_columns, folded, is_case_sensitive
from penstock.connectors.table_schema import as_nullable
from penstock.errors import SinkError
from penstock.spark.jvm import Bridge
from penstock.spark.session_catalog import SESSION_CATALOG, CatalogTable, find_table, lasting_catalog
from penstock.spark.table_partitions import known_partitions
from penstock.spark.table_writes import TableWrite, statement_of, table_write
from penstock.spark_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.commit import Prepared
    from penstock.connectors.file_job import FileSinkJob
    from penstock.connectors.partition_commit import PartitionCommitPolicy


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

    calls_python = False

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
        by, options = table.partition_by, self._options
        sink = FileSink(
            table.location, table.format, self._mode, by, options, table=self._table.name, token=self._token
        )
        return sink.opened(self._spark, of_table=True)

    @property
    def nothing_to_write(self) -> str | None:
        """Why the table needs no rows."""
        return self._files.nothing_to_write

    @property
    def target_folder(self) -> str:
        """The table's folder."""
        return self._files.target_folder

    @property
    def makes_target(self) -> bool:
        """Whether the table is not there yet."""
        return self._is_new

    def check(self, schema: StructType) -> None:
        """Refuse rows that the table cannot hold, as Spark does."""
        if self._is_new:
            self._check_new(schema)
        elif self._shaped:
            self._files.check(schema)
        else:
            with in_words():
                written = self._write_of(self._spark.createDataFrame([], schema))
            self._options = written.options
            self._files = self._opened()
            self._files.check(written.rows.schema)

    def _check_new(self, schema: StructType) -> None:
        """Find the partition columns among those of the rows, and look whether Spark would make such a table."""
        table, where = self._table, f"table {self._table.name}"
        check_partition_columns(self._spark, schema, table.partition_by, where)
        case_sensitive = is_case_sensitive(self._spark)
        names = {folded(name, case_sensitive=case_sensitive): name for name in schema.fieldNames()}
        by = tuple(names[folded(name, case_sensitive=case_sensitive)] for name in table.partition_by)
        self._table = table = replace(table, partition_by=by)
        self._schema = schema
        self._files = self._opened()
        self._files.check(schema)
        with in_words():
            made = table_write(self._bridge, statement_of(table, self._options, schema.fieldNames()))
        if made is None:
            why = f"the catalogue {SESSION_CATALOG} of this session makes tables in a way of its own"
            raise SinkError(f"{where} cannot be made by TableSink", cause=why, hint="write it with Spark")

    def _write_of(self, rows: DataFrame) -> TableWrite:
        # Whatever the mode: Spark refuses to overwrite a table that the rows are read from, and a job may.
        found = table_write(Bridge(rows.sparkSession), f"INSERT INTO {self._table.name} BY NAME SELECT 1", rows)
        if found is None:
            raise self._changed()
        return found

    def _changed(self) -> SinkError:
        why = "its partitions lie in folders of their own, or it was changed while the job ran"
        return SinkError(
            f"table {self._table.name} cannot be written by TableSink", cause=why, hint="write it with Spark"
        )

    def write(self, df: DataFrame) -> None:
        """Write the rows into the hidden folder."""
        if self.nothing_to_write is not None:
            return
        self._files.write(df if self._shaped or self._is_new else self._write_of(df).rows)

    def restart(self) -> bool:
        """Remove what a write that failed has left."""
        return self._files.restart()

    def prepare(self) -> Prepared:
        """Look what has to be moved, and what the catalogue is to be told."""
        files = self._files.prepare()
        if self.nothing_to_write is not None:
            return files
        return self._new(files) if self._is_new else self._known(files)

    def _new(self, files: Prepared) -> PreparedTable:
        """Return the record of a table that is not there yet: partition columns come last, and all may be null."""
        assert self._schema is not None
        table, rows = self._table, self._schema
        inside = [one for one in rows if one.name not in table.partition_by]
        schema = as_nullable(StructType([*inside, *(rows[name] for name in table.partition_by)]))
        statement = statement_of(table, self._options, schema.fieldNames())
        partitions = tuple(self._files.partitions) if table.tracked else ()
        return PreparedTable(
            table.name,
            files.as_dict(),
            statement,
            schema.json(),
            self._external,
            partitions,
            location=table.location,
            catalog=lasting_catalog(self._bridge),
        )

    def _known(self, files: Prepared) -> PreparedTable:
        """Return the record of a table that is there.

        Raises
        ------
        SinkError
            If somebody has put a partition into another place since the job began: its rows would not be found.
        """
        table, catalog = self._table, lasting_catalog(self._bridge)
        if not table.tracked:
            return PreparedTable(table.name, files.as_dict(), catalog=catalog, created=table.created)
        if find_table(self._bridge, table.name) is None:
            raise SinkError.table_is_gone(table.name, None)
        known = known_partitions(self._bridge, table.name, table.location)
        if known.elsewhere:
            raise self._changed()
        written = set(self._files.partitions)
        replaces_all = self._mode == "overwrite" and not self._files.replaces_partitions
        return PreparedTable(
            table.name,
            files.as_dict(),
            partitions=tuple(sorted(written)),
            new_partitions=tuple(sorted(written - known.folders)),
            gone_partitions=tuple(sorted(known.folders - written)) if replaces_all else (),
            catalog=catalog,
            created=table.created,
        )

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Apply policies to every partition that was written; the catalogue has heard of them in the commit."""
        if not self._table.partition_by:
            return StageReport("nothing", "the table has no partition columns")
        return self._files.commit_partitions([one for one in policies if one[0] != METASTORE])

    def abort(self) -> None:
        """Remove the hidden folder."""
        self._files.abort()

    def refresh(self) -> None:
        """Let cached readers see what was written, as Spark does after a write."""
        self._files.refresh()
        if find_table(self._bridge, self._table.name) is not None:
            self._spark.catalog.refreshTable(self._table.name)
