"""Sinks of tables of Spark's catalog whose rows are in files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.types import StructType

from penstock.base.arguments import check_settings, check_table, columns_of
from penstock.commit import recover_target, wait_for_commits_at
from penstock.commit.catalog_tables import PreparedTable
from penstock.commit.file_tokens import has_token
from penstock.connectors.core.base import (
    NothingToWrite,
    Sink,
    SinkJob,
    SinkStage,
    StageReport,
    TargetOptions,
    check_positive,
)
from penstock.connectors.core.sink_checks import check_partition_columns, check_rights, name_folding
from penstock.connectors.files.files import FORMATS, MODES, FileSink
from penstock.connectors.files.partition_commit import METASTORE, commit_stage, policies_of
from penstock.connectors.tables.table_schema import as_nullable
from penstock.errors import SinkError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.errors import translate_errors
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.io.session_catalog import (
    SESSION_CATALOG,
    CatalogTable,
    default_location,
    find_table,
    manages_partitions,
    options_of,
    persistent_catalog_id,
    quoted_name,
)
from penstock.spark.io.table_partitions import registered_partitions
from penstock.spark.io.table_writes import TableWrite, statement_of, table_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.commit import Access, Prepared
    from penstock.connectors.core.base import SinkOptions
    from penstock.connectors.files.partition_commit import PartitionCommitPolicy
    from penstock.connectors.files.sink_job import FileSinkJob

log = logging.getLogger("penstock.sinks")

_FALLBACK_MESSAGE = "the statement falls back to Spark: %s"


@dataclass(frozen=True)
class TableSink(Sink):
    """A table of Spark's catalog, managed or external, whose rows are files that Spark writes.

    Columns are matched by name, and cast as Spark casts them for a table. All rows become visible together with those
    of the job's other sinks; the same commit adds a new table and new partitions to the catalog.

    >>> env.write(spark.range(3), TableSink("numbers"))
    >>> job = env.execute()
    >>> spark.table("numbers").count()
    3

    Parameters
    ----------
    table
        Its name, such as ``"db.orders"``.
    mode
        What to do if the table exists: ``error``, ``append``, ``overwrite`` or ``ignore``. ``overwrite`` replaces the
        rows and retains the table's definition; with partition columns it replaces only the partitions that get rows if
        ``spark.sql.sources.partitionOverwriteMode`` is ``dynamic`` when the job starts. In a Hive table whose format
        Spark writes itself, ``overwrite`` always replaces only these partitions, as Spark does.
    partition_by
        The partition columns of a new table: a list, or a single name.
    format
        The file format of a new table; if None, ``spark.sql.sources.default`` applies.
    options
        Options of a new table's files; those that begin with ``sink.`` also apply to an existing table.
    parallelism
        The number of writing tasks; if None, the tasks that compute the rows write them.
    token
        An idempotency token for these rows, as in `FileSink`.
    partition_commit
        Policies that run once all files of a partition are visible and the catalog has the partition, as in `FileSink`.
        If None, ``sink.partition-commit.policy.kind`` applies: from the table's OPTIONS or TBLPROPERTIES, else from the
        options of the job.
    """

    table: str
    mode: str = "error"
    partition_by: str | Sequence[str] = ()
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    parallelism: int | None = None
    token: str | None = None
    partition_commit: Sequence[str | PartitionCommitPolicy] | None = None
    restartable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_table(self.table, "TableSink")
        check_settings(self.options, f"the options of table {self.table}")
        columns = columns_of(self.partition_by, f"partition_by of table {self.table}")
        object.__setattr__(self, "partition_by", columns)
        if self.mode not in MODES:
            raise SinkError(f"mode {self.mode!r} is not valid", hint=f"give one of {', '.join(MODES)}")
        if self.format is not None and self.format not in FORMATS:
            raise SinkError(f"format {self.format!r} is not valid", hint=f"give one of {', '.join(FORMATS)}")
        check_positive(f"table {self.table}", self.parallelism)
        policies_of(self.partition_commit or (), self.table, f"table {self.table}")

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    @property
    def location(self) -> str:
        """A key of the target: ``table``, a space, and the table's name in lower case without quotes."""
        return f"table {self.table.replace('`', '').lower()}"

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the stage that applies the partition commit policies; empty without policies."""
        kinds = options.partition_commit if self.partition_commit is None else self.partition_commit
        return _partition_commit_stages(kinds, self.table)

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """Return the sink's options, which override the OPTIONS of an existing table, and the table's TBLPROPERTIES."""
        with translate_errors():
            options, properties = options_of(Bridge(spark), self.table)
        return TargetOptions({**options, **self.options}, properties)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        with translate_errors():
            table = find_table(access.bridge, self.table)
            location = default_location(access.bridge, self.table) if table is None else table.location
        target = HadoopPath(access.bridge, location)
        recover_target(access, target)
        if self.token is not None or self.mode == "ignore":  # the committed state decides whether anything is written
            wait_for_commits_at(access, target)

    def open(self, spark: SparkSession) -> SinkJob:
        """Check that the table can be written in this mode, and return the job that writes it."""
        bridge = Bridge(spark)
        with translate_errors():
            table = find_table(bridge, self.table)
        if table is None:
            return _TableSinkJob(spark, self._new_table(bridge), "error", self.options, self.token, is_new=True)
        is_committed = self.token is not None and has_token(HadoopPath(bridge, table.location), self.token)
        if self.mode == "error" and not is_committed:
            raise SinkError(
                f"table {self.table} exists already",
                hint='choose another name, or mode="append", "overwrite" or "ignore"',
            )
        if self.mode == "ignore":
            return NothingToWrite("the table exists, and the mode is ignore")
        if not table.format:
            raise SinkError(
                f"table {self.table} cannot be written by TableSink",
                cause="it is a view, has buckets, or its rows are not in files that Spark writes itself",
                hint="write it with Spark, or with DeltaSink, IcebergSink or JdbcSink if it is such a table",
            )
        partition_by = columns_of(self.partition_by, self.table)
        fold = name_folding(spark)
        if partition_by and [*map(fold, partition_by)] != [*map(fold, table.partition_by)]:
            raise SinkError(
                f"table {self.table} is partitioned by {', '.join(table.partition_by) or 'no column'}, "
                f"not by {', '.join(partition_by)}",
                hint="leave partition_by out: an existing table retains its partition columns",
            )
        return _TableSinkJob(spark, table, self.mode, self.options, self.token, is_new=False)

    def _new_table(self, bridge: Bridge) -> CatalogTable:
        file_format = self.format or str(bridge.spark.conf.get("spark.sql.sources.default"))
        if file_format not in FORMATS:
            raise SinkError(
                f"table {self.table} cannot have files of format {file_format!r}",
                hint=f"give TableSink one of {', '.join(FORMATS)} as format",
            )
        with translate_errors():
            name, location = quoted_name(bridge, self.table), default_location(bridge, self.table)
        partition_by = columns_of(self.partition_by, self.table)
        return CatalogTable(
            name, location, file_format, partition_by, bool(partition_by) and manages_partitions(bridge)
        )


class StatementSink(Sink):
    """The table that an SQL statement writes to; Spark has already cast the rows to the table's columns."""

    restartable: ClassVar[bool] = True

    def __init__(self, write: TableWrite) -> None:
        self._write = write
        self.rows = write.rows

    @property
    def name(self) -> str:
        """The table's name."""
        return self._write.table.name

    @property
    def partition_columns(self) -> Sequence[str]:
        """The table's partition columns."""
        return self._write.table.partition_by

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the stage that applies the partition commit policies; empty without policies."""
        return _partition_commit_stages(options.partition_commit if self.partition_columns else (), self.name)

    def target_options(self, spark: SparkSession) -> TargetOptions:  # noqa: ARG002
        """Return the OPTIONS of the statement and the table, and the TBLPROPERTIES of an existing table."""
        return TargetOptions(self._write.options, self._write.properties)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        recover_target(access, HadoopPath(access.bridge, self._write.table.location))

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the table's folder, and return the job that writes to it."""
        write = self._write
        mode = "error" if write.is_new else "overwrite" if write.overwrites else "append"
        return _TableSinkJob(
            spark, write.table, mode, write.options, None, is_new=write.is_new, external=write.is_external, is_cast=True
        )


def _partition_commit_stages(kinds: Sequence[str | PartitionCommitPolicy], table: str) -> Sequence[SinkStage]:
    return (commit_stage(kinds, table, table, f"table {table}"),) if kinds else ()


def sink_of_statement(access: Access, statement: str) -> StatementSink | None:
    """Return the sink for the table that a statement writes to; None if Spark has to run the statement.

    Penstock creates a staging folder and a journal next to the table's folder, and renames folders there. If that is
    not possible, the statement falls back to Spark, which writes only into the table's folder. Raise `SinkError` if a
    dead process has left a commit of the table that can be neither completed nor rolled back.
    """
    write = table_write(access.bridge, statement)
    if write is None:
        return None
    location = write.table.location
    folder = HadoopPath(access.bridge, location)
    if not folder.name:  # a whole file system: no folder can be next to it
        return None
    try:
        check_rights(location, folder, appends=True)
    except SinkError as error:
        log.info(_FALLBACK_MESSAGE, error)
        return None
    if recover_target(access, folder):
        write = table_write(access.bridge, statement)  # the recovery may have dropped the table, or replaced its files
    if write is None or write.is_unfinished:  # unfinished: another job has begun to create the table
        return None
    sink = StatementSink(write)
    try:
        sink.open(access.bridge.spark).check(write.rows.schema)
    except SinkError as error:
        log.info(_FALLBACK_MESSAGE, error)
        return None
    return sink


@dataclass(eq=False)
class _TableSinkJob(SinkJob):
    """The job that writes the table's files like a `FileSink` in this mode, and updates the catalog in the same commit.

    `options` are those of the files; `check` sets them for an existing table. `external` says whether the user has set
    the location of a new table, and `is_cast` whether the rows already have the table's columns, in its order.
    """

    calls_python = False  # Spark itself writes the files

    spark: SparkSession
    table: CatalogTable
    mode: str
    options: Mapping[str, str] = field(repr=False)
    token: str | None
    _: KW_ONLY
    is_new: bool
    external: bool = False
    is_cast: bool = False
    _schema: StructType | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._bridge = Bridge(self.spark)
        self._file_job = self._open_file_job()

    def _open_file_job(self) -> FileSinkJob:
        table, options = self.table, self.options
        sink = FileSink(
            table.location, table.format, self.mode, table.partition_by, options, table=table.name, token=self.token
        )
        return sink.open_folder(self.spark, of_table=True)

    @property
    def nothing_to_write(self) -> str | None:
        return self._file_job.nothing_to_write

    @property
    def target_folder(self) -> str:
        return self._file_job.target_folder

    @property
    def creates_target(self) -> bool:
        return self.is_new

    def check(self, schema: StructType) -> None:
        if self.is_new:
            self._check_new(schema)
        elif self.is_cast:
            self._file_job.check(schema)
        else:
            with translate_errors():
                write = self._resolve_write(self.spark.createDataFrame([], schema))
            self.options = write.options
            self._file_job = self._open_file_job()
            self._file_job.check(write.rows.schema)

    def _check_new(self, schema: StructType) -> None:
        """Use the schema's spelling of the partition columns, and check that Spark can create the table."""
        table, where = self.table, f"table {self.table.name}"
        check_partition_columns(self.spark, schema, table.partition_by, where)
        fold = name_folding(self.spark)
        names = {fold(name): name for name in schema.fieldNames()}
        partition_by = tuple(names[fold(name)] for name in table.partition_by)
        self.table = table = replace(table, partition_by=partition_by)
        self._schema = schema
        self._file_job = self._open_file_job()
        self._file_job.check(schema)
        with translate_errors():
            write = table_write(self._bridge, statement_of(table, dict(self.options), schema.fieldNames()))
        if write is None:
            cause = f"the catalog {SESSION_CATALOG} of this session creates tables in another way than Spark"
            raise SinkError(f"{where} cannot be created by TableSink", cause=cause, hint="write it with Spark")

    def _resolve_write(self, rows: DataFrame) -> TableWrite:
        # Only analyzed, with `rows` for SELECT 1. Not OVERWRITE, which Spark would reject if `rows` read the table.
        write = table_write(Bridge(rows.sparkSession), f"INSERT INTO {self.table.name} BY NAME SELECT 1", rows)
        if write is None:
            raise self._changed_error()
        return write

    def _changed_error(self) -> SinkError:
        cause = "partitions are outside its folder, or the table was changed while the job ran"
        return SinkError(
            f"table {self.table.name} cannot be written by TableSink", cause=cause, hint="write it with Spark"
        )

    def write(self, df: DataFrame) -> None:
        if self.nothing_to_write is not None:
            return
        self._file_job.write(df if self.is_cast or self.is_new else self._resolve_write(df).rows)

    def restart(self) -> bool:
        return self._file_job.restart()

    def prepare(self) -> Prepared:
        file_record = self._file_job.prepare()
        if self.nothing_to_write is not None:
            return file_record
        return self._prepare_new(file_record) if self.is_new else self._prepare_existing(file_record)

    def _prepare_new(self, file_record: Prepared) -> PreparedTable:
        """Return the record of a new table: partition columns come last, and all columns are nullable."""
        assert self._schema is not None
        table, rows = self.table, self._schema
        data_columns = [field for field in rows if field.name not in table.partition_by]
        schema = as_nullable(StructType([*data_columns, *(rows[name] for name in table.partition_by)]))
        statement = statement_of(table, dict(self.options), schema.fieldNames())
        partitions = tuple(self._file_job.partitions) if table.tracks_partitions else ()
        return PreparedTable(
            table.name,
            file_record.as_dict(),
            statement,
            schema.json(),
            self.external,
            partitions,
            location=table.location,
            catalog=persistent_catalog_id(self._bridge),
        )

    def _prepare_existing(self, file_record: Prepared) -> PreparedTable:
        """Return the record of an existing table.

        For a table whose partitions are in the catalog, raise `SinkError` if the table is gone, or a partition was
        moved outside the table's folder since the job began: readers would not see the new rows of the partition.
        """
        table, catalog = self.table, persistent_catalog_id(self._bridge)
        if not table.tracks_partitions:
            return PreparedTable(table.name, file_record.as_dict(), catalog=catalog, created=table.created)
        if find_table(self._bridge, table.name) is None:
            raise SinkError.table_is_gone(table.name, None)
        partitions = registered_partitions(self._bridge, table.name, table.location)
        if partitions.elsewhere:
            raise self._changed_error()
        written_partitions = set(self._file_job.partitions)
        replaces_all = self.mode == "overwrite" and not self._file_job.replaces_partitions
        return PreparedTable(
            table.name,
            file_record.as_dict(),
            partitions=tuple(sorted(written_partitions)),
            new_partitions=tuple(sorted(written_partitions - partitions.folders)),
            emptied_partitions=tuple(sorted(partitions.folders - written_partitions)) if replaces_all else (),
            catalog=catalog,
            created=table.created,
        )

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Apply policies except ``metastore`` to every written partition: the catalog has the partitions already."""
        if not self.table.partition_by:
            return StageReport("nothing", "the table has no partition columns")
        return self._file_job.commit_partitions([(name, policy) for name, policy in policies if name != METASTORE])

    def abort(self) -> None:
        self._file_job.abort()

    def refresh(self) -> None:
        """Invalidate cached DataFrames that read the table, as Spark does after a write."""
        self._file_job.refresh()
        if find_table(self._bridge, self.table.name) is not None:
            self.spark.catalog.refreshTable(self.table.name)
