"""Sinks for tables of Spark's catalogue whose rows are in files."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from penstock.arguments import check_settings, check_table, columns_of
from penstock.commit import recover_target, wait_for_commits_at
from penstock.commit.file_tokens import has_token
from penstock.connectors.base import NothingToWrite, Sink, SinkStage, StageReport, TargetOptions, checked_parallelism
from penstock.connectors.files import FORMATS, MODES
from penstock.connectors.partition_commit import policies_of
from penstock.connectors.sink_checks import check_rights, folded, is_case_sensitive
from penstock.connectors.table_job import TableSinkJob
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge
from penstock.spark.session_catalog import (
    CatalogTable,
    default_location,
    find_table,
    manages_partitions,
    options_of,
    quoted_name,
)
from penstock.spark.table_writes import table_write
from penstock.spark_errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.commit import Access
    from penstock.connectors.base import SinkJob, SinkOptions
    from penstock.connectors.partition_commit import PartitionCommitPolicy
    from penstock.spark.table_writes import TableWrite

log = logging.getLogger("penstock.sinks")

_FALLBACK = "the statement is left to Spark: %s"


@dataclass(frozen=True)
class TableSink(Sink):
    """A table of Spark's catalogue, managed or external, whose rows are files that Spark writes.

    Columns are matched by name, and cast as Spark casts them for a table. All rows become visible together with those
    of the job's other sinks; the same commit adds a new table and new partitions to the catalogue.

    Parameters
    ----------
    table
        Its name, such as ``"db.orders"``.
    mode
        What to do if the table exists: ``error``, ``append``, ``overwrite`` or ``ignore``. ``overwrite`` replaces
        the rows and retains the table's definition; with partition columns it replaces only the partitions that get
        rows if ``spark.sql.sources.partitionOverwriteMode`` is ``dynamic`` when the job starts. In a Hive table whose
        format Spark writes itself, it replaces only these regardless of the setting, as Spark does.
    partition_by
        The partition columns of a new table: a list, or a single name.
    format
        The file format of a new table; if None, ``spark.sql.sources.default`` applies.
    options
        Options of a new table's files.
    parallelism
        The number of writing tasks; if None, the tasks that compute the rows write them.
    token
        An idempotency token for these rows, as in `FileSink`.
    partition_commit
        Policies that run once all files of a partition are visible and it is in the catalogue, as in `FileSink`. If
        None, ``sink.partition-commit.policy.kind`` applies, from the table's OPTIONS or TBLPROPERTIES, or of the job.
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
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"table {self.table}")
        policies_of(self.partition_commit or (), self.table, f"table {self.table}")

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    @property
    def location(self) -> str:
        """The table's name, normalized."""
        return f"table {self.table.replace('`', '').lower()}"

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the partition commit, if it is enabled."""
        kinds = options.partition_commit if self.partition_commit is None else self.partition_commit
        return _stages(kinds, self.table)

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """Return the options of the new table, or those of the existing table."""
        with translate_errors():
            options, properties = options_of(Bridge(spark), self.table)
        return TargetOptions({**options, **self.options}, properties)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        with translate_errors():
            table = find_table(access.bridge, self.table)
            location = default_location(access.bridge, self.table) if table is None else table.location
        target = Folder(access.bridge, location)
        recover_target(access, target)
        if self.token is not None or self.mode == "ignore":
            wait_for_commits_at(access, target)

    def open(self, spark: SparkSession) -> SinkJob:
        """Check whether the table exists and can be written."""
        bridge = Bridge(spark)
        with translate_errors():
            table = find_table(bridge, self.table)
        if table is None:
            return self._opened(spark, self._new(bridge), is_new=True)
        is_committed = self.token is not None and has_token(Folder(bridge, table.location), self.token)
        if self.mode == "error" and not is_committed:
            raise SinkError(
                f"table {self.table} exists already",
                hint='choose another name, or mode="append", "overwrite" or "ignore"',
            )
        if self.mode == "ignore":
            return NothingToWrite("", reason="the table exists, and the mode is ignore")
        if not table.format:
            raise SinkError(
                f"table {self.table} cannot be written by TableSink",
                cause="it is a view, has buckets, or its rows are not in files that Spark writes itself",
                hint="write it with Spark, or use DeltaSink, IcebergSink or JdbcSink if it is one of these",
            )
        partition_by = columns_of(self.partition_by, self.table)
        case_sensitive = is_case_sensitive(spark)
        requested, actual = (
            [folded(name, case_sensitive=case_sensitive) for name in names]
            for names in (partition_by, table.partition_by)
        )
        if partition_by and requested != actual:
            raise SinkError(
                f"table {self.table} is partitioned by {', '.join(table.partition_by) or 'no column'}, "
                f"not by {', '.join(partition_by)}",
                hint="leave partition_by out: a table that exists keeps its partition columns",
            )
        return self._opened(spark, table, is_new=False)

    def _new(self, bridge: Bridge) -> CatalogTable:
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
            name, location, file_format, partition_by, tracked=bool(partition_by) and manages_partitions(bridge)
        )

    def _opened(self, spark: SparkSession, table: CatalogTable, *, is_new: bool) -> SinkJob:
        mode = "error" if is_new else self.mode
        return TableSinkJob(spark, table, mode, dict(self.options), self.token, is_new=is_new)


class StatementSink(Sink):
    """The table that an SQL statement writes to; Spark has already cast the rows to the table's columns.

    Parameters
    ----------
    write
        The parsed statement.
    """

    restartable: ClassVar[bool] = True

    def __init__(self, write: TableWrite) -> None:
        self._write = write

    @property
    def name(self) -> str:
        """The table's name."""
        return self._write.table.name

    @property
    def partition_columns(self) -> Sequence[str]:
        """The table's partition columns."""
        return self._write.table.partition_by

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the partition commit, if it is enabled."""
        return _stages(options.partition_commit if self.partition_columns else (), self.name)

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """Return the options and properties of the table and the statement."""
        del spark
        return TargetOptions(self._write.options, self._write.properties)

    @property
    def rows(self) -> DataFrame:
        """The rows that the statement writes."""
        return self._write.rows

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        recover_target(access, Folder(access.bridge, self._write.table.location))

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the table's folder."""
        write = self._write
        mode = "error" if write.is_new else "overwrite" if write.overwrites else "append"
        return TableSinkJob(
            spark,
            write.table,
            mode,
            write.options,
            None,
            is_new=write.is_new,
            external=write.external,
            shaped=True,
        )


def _stages(kinds: Sequence[str | PartitionCommitPolicy], table: str) -> Sequence[SinkStage]:
    if not kinds:
        return ()
    run = partial(_commit_partitions, policies=policies_of(kinds, table, f"table {table}"))
    return (SinkStage(f"Partition commit: {table}", run, after_commit=True),)


def _commit_partitions(job: SinkJob, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
    if isinstance(job, NothingToWrite):
        return StageReport("nothing", "nothing was written")
    assert isinstance(job, TableSinkJob)
    return job.commit_partitions(policies)


def sink_of_statement(access: Access, statement: str) -> StatementSink | None:
    """Return the sink for the table that a statement writes to, None if Spark has to run the statement.

    Penstock needs a staging folder and a journal next to the table's folder, and renames between them. Spark does not,
    so the statement falls back to Spark if they are not possible.

    Raises
    ------
    SinkError
        If a dead process left a commit of the table that can be neither completed nor rolled back.
    """
    write = table_write(access.bridge, statement)
    if write is None:
        return None
    location = write.table.location
    folder = Folder(access.bridge, location)
    if not folder.name:
        return None
    try:
        check_rights(location, folder, adds=True)
    except SinkError as error:
        log.info(_FALLBACK, error)
        return None
    if recover_target(access, folder):
        write = table_write(access.bridge, statement)  # the recovery may have dropped the table, or replaced its files
    if write is None or write.is_unfinished:
        return None
    sink = StatementSink(write)
    try:
        sink.open(access.bridge.spark).check(write.rows.schema)
    except SinkError as error:
        log.info(_FALLBACK, error)
        return None
    return sink
