"""Files: parquet, orc, csv, json and text, read and written."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from penstock.arguments import check_members, check_path, check_settings, columns_of
from penstock.commit import place_of, recover_target, wait_for_commits_at
from penstock.commit.file_tokens import has_token
from penstock.config.options import SINK_TARGET_FILE_SIZE
from penstock.connectors.base import (
    ParallelismInferenceContext,
    Sink,
    SinkStage,
    Source,
    TargetOptions,
    checked_parallelism,
)
from penstock.connectors.compaction import FORMATS as FORMATS_TO_MERGE
from penstock.connectors.file_job import FileSinkJob
from penstock.connectors.partition_commit import policies_of
from penstock.connectors.sink_checks import check_rights
from penstock.connectors.splits import COARSE, OPEN_COST, count_splits, why_not_more, worth_opening
from penstock.errors import SinkError, SourceError
from penstock.masking import repr_without_secrets
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access
    from penstock.connectors.base import SinkJob, SinkOptions, StageReport
    from penstock.connectors.partition_commit import PartitionCommitPolicy
    from penstock.spark.files import FileListing

FORMATS = ("parquet", "orc", "csv", "json", "text")
MODES = ("error", "overwrite", "append", "ignore")
_OVERWRITE_OPTION = "partitionOverwriteMode"


def _checked(value: object, allowed: tuple[str, ...], what: str, error: type[SourceError | SinkError]) -> str:
    word = value.lower() if isinstance(value, str) else ""
    if word not in allowed:
        raise error(f"{what} {value!r} is not known", hint=f"give one of {', '.join(allowed)}")
    return word


@dataclass(frozen=True)
class FileSource(Source):
    """Files that Spark can read.

    Parameters
    ----------
    path
        A file, folder or pattern, or several of them.
    format
        One of `FORMATS`.
    schema
        The schema; if None, found by Spark.
    options
        Options of Spark's reader.
    parallelism
        The number of tasks, instead of what the files suggest.
    listing
        Lists the files; filled in by the planner, which knows the partitions that are left.
    cores
        How many tasks run at a time; filled in by the planner.
    note
        Takes why there are fewer splits than there could be; filled in by the planner.
    """

    path: str | Sequence[str]
    format: str = "parquet"
    schema: StructType | str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    parallelism: int | None = None
    listing: Callable[[], FileListing] | None = field(default=None, repr=False, compare=False)
    cores: int | None = field(default=None, repr=False, compare=False)
    note: Callable[[str], None] | None = field(default=None, repr=False, compare=False)

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        paths = [self.path] if isinstance(self.path, str) else self.path
        check_members(paths, str, "FileSource", "paths, which are texts", "give str(path)")
        check_settings(self.options, f"the options of source {self.name}")
        object.__setattr__(self, "format", _checked(self.format, FORMATS, "format", SourceError))
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, self.name)

    @property
    def name(self) -> str:
        """The path, or the first of them."""
        return self.path if isinstance(self.path, str) else ", ".join(self.path[:1])

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the files' rows as a DataFrame."""
        reader = spark.read.format(self.format).options(**self.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return reader.load(self.path if isinstance(self.path, str) else list(self.path))

    def with_listing(self, listing: Callable[[], FileListing], cores: int, note: Callable[[str], None]) -> FileSource:
        """Return the source, which may be of a class of the user's own, as one that is part of a plan."""
        found = copy(self)
        object.__setattr__(found, "listing", listing)
        object.__setattr__(found, "cores", cores)
        object.__setattr__(found, "note", note)
        return found

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits of the volume per task, at most the upper bound; 0 for no files.

        Of formats by column, only the columns that are read count.
        """
        if self.listing is None:
            raise SourceError(f"{self.name} is not part of a plan yet", hint="read it through Environment.read")
        files = self.listing()
        read = [max(math.ceil(size * files.fraction), min(size, 1)) for size in files.sizes]
        volume = context.data_volume_per_task
        fine = count_splits(read, files.splittable, volume, OPEN_COST)
        coarse = count_splits(read, files.splittable, COARSE * volume, OPEN_COST)
        if self.note is not None:
            self.note(why_not_more(fine, coarse, self.cores))
        return min(worth_opening(fine, coarse, self.cores), context.parallelism_inference_upper_bound)


@dataclass(frozen=True)
class FileSink(Sink):
    """Files that Spark can write; they appear all together once the job has finished.

    Parameters
    ----------
    path
        The folder.
    format
        One of `FORMATS`.
    mode
        What to do where the folder exists: ``error``, ``overwrite``, ``append`` or ``ignore``. With partition columns,
        ``overwrite`` replaces only the partitions that get rows if ``spark.sql.sources.partitionOverwriteMode`` (or the
        option ``partitionOverwriteMode``) is ``dynamic`` when the job starts.
    partition_by
        Columns that become folders: a list, or the name of one.
    options
        Options of Spark's writer.
    parallelism
        The number of tasks that write. If None: as many as files of the target size need; without a target size, the
        tasks that make the rows.
    target_file_size
        The size that files should have on disk, in bytes or as a text such as ``"128 mb"``. If None, that of the option
        ``sink.target-file-size`` where there are `partition_by` columns; where there are none, each task writes a file.
    auto_compaction
        Whether files of half the target size and less are merged within their folder before they become visible;
        parquet and orc only. If None, as the option ``sink.auto-compaction`` says.
    partition_commit
        What is done once all files of a partition are visible: ``"success-file"`` puts an empty ``_SUCCESS`` into its
        folder, ``"metastore"`` adds it to `table`, and functions of a `CommittedPartition` do what they do. If None,
        what the option ``sink.partition-commit.policy.kind`` says.
    table
        The table of Spark's catalogue that lies at the path; for the policy ``metastore``.
    token
        A name that you give to these rows, such as the day of a daily load. The folder keeps the names of the rows that
        it has. If it has this one, the job writes nothing here. So a job whose driver died can run again at any time,
        and the folder has the rows once.
    """

    path: str
    format: str = "parquet"
    mode: str = "error"
    partition_by: str | Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    parallelism: int | None = None
    restartable: ClassVar[bool] = True
    target_file_size: int | str | None = None
    auto_compaction: bool | None = None
    partition_commit: Sequence[str | PartitionCommitPolicy] | None = None
    table: str | None = None
    token: str | None = None

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_path(self.path, "FileSink")
        check_settings(self.options, f"the options of sink {self.path}")
        object.__setattr__(self, "format", _checked(self.format, FORMATS, "format", SinkError))
        by = columns_of(self.partition_by, f"partition_by of sink {self.path}")
        object.__setattr__(self, "partition_by", by)
        if self.target_file_size is not None:
            size = SINK_TARGET_FILE_SIZE.parse(self.target_file_size, f"sink {self.path}")
            object.__setattr__(self, "target_file_size", size)
        mode = "error" if self.mode == "errorifexists" else self.mode
        object.__setattr__(self, "mode", _checked(mode, MODES, "mode", SinkError))
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"sink {self.path}")
        if self.auto_compaction and self.format not in FORMATS_TO_MERGE:
            raise SinkError(
                f"files of format {self.format} cannot be merged: reading them may not give the rows that were written",
                hint=f"use {' or '.join(FORMATS_TO_MERGE)}, or leave auto_compaction out",
            )
        policies_of(self.partition_commit or (), self.table, f"sink {self.path}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePath(self.path).name

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns."""
        return columns_of(self.partition_by, self.path)

    @property
    def place(self) -> str:
        """The folder."""
        return place_of(self.path)

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """Return the options of the writer."""
        del spark
        return TargetOptions(self.options)

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the size that was given, that of the options where there are partition columns, else None."""
        return self._target(options) if self.partition_by or self.target_file_size is not None else None

    def _target(self, options: SinkOptions) -> int:
        return self.target_file_size if isinstance(self.target_file_size, int) else options.target_file_size

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return compaction and partition commit, as far as they are asked for."""
        found = []
        wanted = options.auto_compaction if self.auto_compaction is None else self.auto_compaction
        if wanted and self.format in FORMATS_TO_MERGE:
            found.append(SinkStage(f"Compaction: {self.name}", partial(_compact, target=self._target(options))))
        kinds = options.partition_commit if self.partition_commit is None else self.partition_commit
        if kinds and self.partition_by:
            policies = policies_of(kinds, self.table, f"sink {self.path}")
            run = partial(_commit_partitions, policies=policies)
            found.append(SinkStage(f"Partition commit: {self.name}", run, after_commit=True))
        return found

    def recover(self, access: Access) -> None:
        """Complete or take back what a dead process has left half-way."""
        target = Folder(access.bridge, self.path)
        recover_target(access, target)
        if self.token is not None or self.mode == "ignore":  # what is there now decides whether anything is written
            wait_for_commits_at(access, target)

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the folder; refuse one that exists where the mode is ``error``."""
        return self.opened(spark)

    def opened(self, spark: SparkSession, *, of_table: bool = False) -> FileSinkJob:
        """Return what `open` does, by its own type.

        Parameters
        ----------
        spark
            The session.
        of_table
            Whether the folder is a table's. Then it may be there if it is empty, though the mode is ``error``, and gets
            no ``_SUCCESS`` where partitions are overwritten, as by Spark.
        """
        target = Folder(Bridge(spark), self.path)
        if not target.name:
            raise SinkError(f"output {self.path} is a whole file system", hint="choose a folder within it")
        volumes = target.volumes_below() if self.mode == "overwrite" or self.partition_by else []
        if volumes:
            raise SinkError(
                f"output {self.path} holds volumes of their own: {', '.join(volumes)}",
                cause="nothing can be renamed from one volume into another, and a copy could be seen half-way",
                hint="mount one volume for the whole output, or write to each of them by a sink of its own",
            )
        done = self.token is not None and has_token(target, self.token)
        if target.exists() and not done:
            if self.mode == "error" and not (of_table and not target.is_volume and target.is_empty()):
                raise SinkError.exists(self.path)
            if self.mode == "append" and not target.is_folder():
                raise SinkError(f"output {self.path} is a file, not a folder", hint="choose another path")
        by_partition = self._replaces_partitions(spark)
        job = FileSinkJob(spark, self, target, by_partition=by_partition, done=done, of_table=of_table)
        if job.nothing_to_write is None:
            check_rights(self.path, target, adds=self.adds or bool(self.partition_columns))
        return job

    def _replaces_partitions(self, spark: SparkSession) -> bool:
        """Whether an overwrite leaves the partitions that get no rows (``PartitionOverwriteMode``)."""
        if self.mode != "overwrite" or not self.partition_by:
            return False
        given = {key.lower(): value for key, value in self.options.items()}.get(_OVERWRITE_OPTION.lower())
        word = str(given or spark.conf.get(f"spark.sql.sources.{_OVERWRITE_OPTION}", "static"))
        return _checked(word, ("static", "dynamic"), _OVERWRITE_OPTION, SinkError) == "dynamic"


def _compact(job: SinkJob, target: int) -> StageReport:
    assert isinstance(job, FileSinkJob)
    return job.compact(target)


def _commit_partitions(job: SinkJob, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
    assert isinstance(job, FileSinkJob)
    return job.commit_partitions(policies)
