"""Tables of Spark's catalogue whose rows are in files: made, added to and overwritten by a job."""

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
from penstock.spark_errors import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.commit import Access
    from penstock.connectors.base import SinkJob, SinkOptions
    from penstock.connectors.partition_commit import PartitionCommitPolicy
    from penstock.spark.table_writes import TableWrite

log = logging.getLogger("penstock.sinks")

_LEFT = "the statement is left to Spark: %s"


@dataclass(frozen=True)
class TableSink(Sink):
    """A table of Spark's catalogue, managed or external, whose rows are files that Spark writes.

    Columns are found by name, and cast as Spark casts them for a table. All rows appear together with those of the
    job's other sinks; the catalogue hears of a new table, and of new partitions, in the same commit.

    Parameters
    ----------
    table
        Its name, such as ``"db.orders"``.
    mode
        What to do where the table exists: ``error``, ``append``, ``overwrite`` or ``ignore``. ``overwrite`` replaces
        the rows and keeps the table's definition; with partition columns only the partitions that get rows, if
        ``spark.sql.sources.partitionOverwriteMode`` is ``dynamic`` when the job starts. Of a table in a format of Hive
        that Spark writes itself, only these are replaced whatever that setting is, as Spark does it.
    partition_by
        The partition columns of a new table: a list, or the name of one.
    format
        The format of a new table's files; if None, what ``spark.sql.sources.default`` says.
    options
        Options of a new table's files.
    parallelism
        The number of tasks that write; if None, the tasks that make the rows.
    token
        A name that you give to these rows, as of a `FileSink`.
    partition_commit
        What is done once all files of a partition are visible and the catalogue knows it, as of a `FileSink`. If None,
        what ``sink.partition-commit.policy.kind`` says in the table's OPTIONS or TBLPROPERTIES, or in those of the job.
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
            raise SinkError(f"mode {self.mode!r} is not known", hint=f"give one of {', '.join(MODES)}")
        if self.format is not None and self.format not in FORMATS:
            raise SinkError(f"format {self.format!r} is not known", hint=f"give one of {', '.join(FORMATS)}")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"table {self.table}")
        policies_of(self.partition_commit or (), self.table, f"table {self.table}")

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    @property
    def place(self) -> str:
        """The table's name, without quotes."""
        return f"table {self.table.replace('`', '').lower()}"

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the partition commit, if it is asked for."""
        kinds = options.partition_commit if self.partition_commit is None else self.partition_commit
        return _stages(kinds, self.table)

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """Return the options of a new table's files; of one that is there, those that it has."""
        with in_words():
            options, properties = options_of(Bridge(spark), self.table)
        return TargetOptions({**options, **self.options}, properties)

    def recover(self, access: Access) -> None:
        """Complete or take back what a dead process has left half-way."""
        with in_words():
            table = find_table(access.bridge, self.table)
            location = default_location(access.bridge, self.table) if table is None else table.location
        target = Folder(access.bridge, location)
        recover_target(access, target)
        if self.token is not None or self.mode == "ignore":
            wait_for_commits_at(access, target)

    def open(self, spark: SparkSession) -> SinkJob:
        """Look whether there is such a table, and whether it can be written."""
        bridge = Bridge(spark)
        with in_words():
            table = find_table(bridge, self.table)
        if table is None:
            return self._opened(spark, self._new(bridge), is_new=True)
        is_done = self.token is not None and has_token(Folder(bridge, table.location), self.token)
        if self.mode == "error" and not is_done:
            raise SinkError(
                f"table {self.table} exists already",
                hint='choose another name, or mode="append", "overwrite" or "ignore"',
            )
        if self.mode == "ignore":
            return NothingToWrite("", why="the table exists, and the mode is ignore")
        if not table.format:
            raise SinkError(
                f"table {self.table} cannot be written by TableSink",
                cause="it is a view, has buckets, or its rows are not in files that Spark writes itself",
                hint="write it with Spark, or use DeltaSink, IcebergSink or JdbcSink if it is one of these",
            )
        given = columns_of(self.partition_by, self.table)
        case_sensitive = is_case_sensitive(spark)
        wanted, has = (
            [folded(name, case_sensitive=case_sensitive) for name in names] for names in (given, table.partition_by)
        )
        if given and wanted != has:
            raise SinkError(
                f"table {self.table} is partitioned by {', '.join(table.partition_by) or 'no column'}, "
                f"not by {', '.join(given)}",
                hint="leave partition_by out: a table that exists keeps its partition columns",
            )
        return self._opened(spark, table, is_new=False)

    def _new(self, bridge: Bridge) -> CatalogTable:
        chosen = self.format or str(bridge.spark.conf.get("spark.sql.sources.default"))
        if chosen not in FORMATS:
            raise SinkError(
                f"table {self.table} cannot be made of files of format {chosen!r}",
                hint=f"give TableSink one of {', '.join(FORMATS)} as format",
            )
        with in_words():
            name, location = quoted_name(bridge, self.table), default_location(bridge, self.table)
        by = columns_of(self.partition_by, self.table)
        return CatalogTable(name, location, chosen, by, tracked=bool(by) and manages_partitions(bridge))

    def _opened(self, spark: SparkSession, table: CatalogTable, *, is_new: bool) -> SinkJob:
        mode = "error" if is_new else self.mode
        return TableSinkJob(spark, table, mode, dict(self.options), self.token, is_new=is_new)


class StatementSink(Sink):
    """The table that an SQL statement writes to; the rows have the shape that it wants already.

    Parameters
    ----------
    written
        What the statement writes.
    """

    restartable: ClassVar[bool] = True

    def __init__(self, written: TableWrite) -> None:
        self._written = written

    @property
    def name(self) -> str:
        """The table's name."""
        return self._written.table.name

    @property
    def partition_columns(self) -> Sequence[str]:
        """The table's partition columns."""
        return self._written.table.partition_by

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the partition commit, if it is asked for."""
        return _stages(options.partition_commit if self.partition_columns else (), self.name)

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """Return those of the table and of the statement."""
        del spark
        return TargetOptions(self._written.options, self._written.properties)

    @property
    def rows(self) -> DataFrame:
        """The rows that the statement writes."""
        return self._written.rows

    def recover(self, access: Access) -> None:
        """Complete or take back what a dead process has left half-way."""
        recover_target(access, Folder(access.bridge, self._written.table.location))

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the table's folder."""
        written = self._written
        mode = "error" if written.is_new else "overwrite" if written.overwrites else "append"
        return TableSinkJob(
            spark,
            written.table,
            mode,
            written.options,
            None,
            is_new=written.is_new,
            external=written.external,
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
    """Return the table that a statement writes to, None where Spark runs it.

    Penstock needs a hidden folder, and a journal, beside the table's folder, and renames from one to the other. Spark
    asks less of the place, and is left with the statement where they cannot be had.

    Raises
    ------
    SinkError
        If a dead process has left a commit at the table that cannot be completed or undone.
    """
    written = table_write(access.bridge, statement)
    if written is None:
        return None
    location = written.table.location
    folder = Folder(access.bridge, location)
    if not folder.name:
        return None
    try:
        check_rights(location, folder, adds=True)
    except SinkError as error:
        log.info(_LEFT, error)
        return None
    if recover_target(access, folder):
        written = table_write(access.bridge, statement)  # the table may be gone now, or have other files
    if written is None or written.is_half_made:
        return None
    sink = StatementSink(written)
    try:
        sink.open(access.bridge.spark).check(written.rows.schema)
    except SinkError as error:
        log.info(_LEFT, error)
        return None
    return sink
