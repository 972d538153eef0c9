"""The write of a job into a table of Spark's catalogue."""

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
from penstock.spark.session_catalog import SESSION_CATALOG, CatalogTable, find_table, persistent_catalog_id
from penstock.spark.table_partitions import registered_partitions
from penstock.spark.table_writes import TableWrite, statement_of, table_write
from penstock.spark_errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.commit import Prepared
    from penstock.connectors.file_job import FileSinkJob
    from penstock.connectors.partition_commit import PartitionCommitPolicy


class TableSinkJob(SinkJob):
    """Write the table's files like a `FileSink`, and update the catalogue in the same commit.

    Parameters
    ----------
    spark
        The session.
    table
        The existing or the new table.
    mode
        The mode of the `FileSink` for its files.
    options
        The options of a new table.
    token
        The idempotency token of the rows, or None.
    is_new
        Whether the job creates the table.
    external
        Whether the user set the location of a new table.
    shaped
        Whether the rows already have the columns of the table, in its order.
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
        partition_by, options = table.partition_by, self._options
        sink = FileSink(
            table.location, table.format, self._mode, partition_by, options, table=self._table.name, token=self._token
        )
        return sink.opened(self._spark, of_table=True)

    @property
    def nothing_to_write(self) -> str | None:
        """The reason why the table needs no rows, None if it does."""
        return self._files.nothing_to_write

    @property
    def target_folder(self) -> str:
        """The table's folder."""
        return self._files.target_folder

    @property
    def creates_target(self) -> bool:
        """Whether the job creates the table."""
        return self._is_new

    def check(self, schema: StructType) -> None:
        """Reject rows that the table cannot hold, as Spark does."""
        if self._is_new:
            self._check_new(schema)
        elif self._shaped:
            self._files.check(schema)
        else:
            with translate_errors():
                written = self._write_of(self._spark.createDataFrame([], schema))
            self._options = written.options
            self._files = self._opened()
            self._files.check(written.rows.schema)

    def _check_new(self, schema: StructType) -> None:
        """Resolve the partition columns in the schema, and check that Spark can create the table."""
        table, where = self._table, f"table {self._table.name}"
        check_partition_columns(self._spark, schema, table.partition_by, where)
        case_sensitive = is_case_sensitive(self._spark)
        names = {folded(name, case_sensitive=case_sensitive): name for name in schema.fieldNames()}
        partition_by = tuple(names[folded(name, case_sensitive=case_sensitive)] for name in table.partition_by)
        self._table = table = replace(table, partition_by=partition_by)
        self._schema = schema
        self._files = self._opened()
        self._files.check(schema)
        with translate_errors():
            write = table_write(self._bridge, statement_of(table, self._options, schema.fieldNames()))
        if write is None:
            cause = f"the catalogue {SESSION_CATALOG} of this session creates tables in its own way"
            raise SinkError(f"{where} cannot be created by TableSink", cause=cause, hint="write it with Spark")

    def _write_of(self, rows: DataFrame) -> TableWrite:
        # INSERT INTO in every mode: Spark does not overwrite a table that the rows are read from, Penstock does.
        write = table_write(Bridge(rows.sparkSession), f"INSERT INTO {self._table.name} BY NAME SELECT 1", rows)
        if write is None:
            raise self._changed()
        return write

    def _changed(self) -> SinkError:
        cause = "its partitions lie in folders of their own, or it was changed while the job ran"
        return SinkError(
            f"table {self._table.name} cannot be written by TableSink", cause=cause, hint="write it with Spark"
        )

    def write(self, df: DataFrame) -> None:
        """Write the rows into the staging folder."""
        if self.nothing_to_write is not None:
            return
        self._files.write(df if self._shaped or self._is_new else self._write_of(df).rows)

    def restart(self) -> bool:
        """Remove what a failed write left behind."""
        return self._files.restart()

    def prepare(self) -> Prepared:
        """Return the record of the moved files and of the changes to the catalogue."""
        files = self._files.prepare()
        if self.nothing_to_write is not None:
            return files
        return self._prepare_new(files) if self._is_new else self._prepare_existing(files)

    def _prepare_new(self, files: Prepared) -> PreparedTable:
        """Return the record of a new table: partition columns come last, and all columns are nullable."""
        assert self._schema is not None
        table, rows = self._table, self._schema
        data_columns = [field for field in rows if field.name not in table.partition_by]
        schema = as_nullable(StructType([*data_columns, *(rows[name] for name in table.partition_by)]))
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
            catalog=persistent_catalog_id(self._bridge),
        )

    def _prepare_existing(self, files: Prepared) -> PreparedTable:
        """Return the record of an existing table.

        Raises
        ------
        SinkError
            If a partition was moved outside the table's folder since the job began: readers would not find new rows.
        """
        table, catalog = self._table, persistent_catalog_id(self._bridge)
        if not table.tracked:
            return PreparedTable(table.name, files.as_dict(), catalog=catalog, created=table.created)
        if find_table(self._bridge, table.name) is None:
            raise SinkError.table_is_gone(table.name, None)
        partitions = registered_partitions(self._bridge, table.name, table.location)
        if partitions.elsewhere:
            raise self._changed()
        written = set(self._files.partitions)
        replaces_all = self._mode == "overwrite" and not self._files.replaces_partitions
        return PreparedTable(
            table.name,
            files.as_dict(),
            partitions=tuple(sorted(written)),
            new_partitions=tuple(sorted(written - partitions.folders)),
            gone_partitions=tuple(sorted(partitions.folders - written)) if replaces_all else (),
            catalog=catalog,
            created=table.created,
        )

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Apply policies to every written partition; the commit itself has added them to the catalogue."""
        if not self._table.partition_by:
            return StageReport("nothing", "the table has no partition columns")
        return self._files.commit_partitions([(name, policy) for name, policy in policies if name != METASTORE])

    def abort(self) -> None:
        """Remove the staging folder."""
        self._files.abort()

    def refresh(self) -> None:
        """Invalidate cached readers of the table, as Spark does after a write."""
        self._files.refresh()
        if find_table(self._bridge, self._table.name) is not None:
            self._spark.catalog.refreshTable(self._table.name)
