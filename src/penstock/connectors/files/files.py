"""Source and sink of files: parquet, orc, csv, json and text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from penstock.base.arguments import check_members, check_path, check_settings, columns_of
from penstock.base.masking import repr_without_secrets
from penstock.commit import location_of, recover_target, wait_for_commits_at
from penstock.commit.file_tokens import has_token
from penstock.connectors.core.base import (
    ParallelismInferenceContext,
    SinkJob,
    SinkStage,
    Source,
    TargetOptions,
    check_positive,
)
from penstock.connectors.core.sink_checks import check_rights
from penstock.connectors.core.splits import choose_file_splits
from penstock.connectors.files.compaction import MERGEABLE_FORMATS, SizedFilesSink
from penstock.connectors.files.partition_commit import commit_stage, policies_of
from penstock.connectors.files.sink_job import FileSinkJob
from penstock.errors import SinkError, SourceError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access
    from penstock.connectors.core.base import SinkOptions
    from penstock.connectors.files.partition_commit import PartitionCommitPolicy
    from penstock.spark.io.files import FileListing

FORMATS = ("parquet", "orc", "csv", "json", "text")
MODES = ("error", "overwrite", "append", "ignore")
_OVERWRITE_OPTION = "partitionOverwriteMode"


def _validate_choice(
    value: object, allowed: tuple[str, ...], setting: str, error: type[SourceError | SinkError]
) -> str:
    choice = value.lower() if isinstance(value, str) else ""
    if choice not in allowed:
        raise error(f"{setting} {value!r} is not valid", hint=f"give one of {', '.join(allowed)}")
    return choice


@dataclass(frozen=True)
class FileSource(Source):
    """Files that Spark can read.

    >>> spark.range(3).write.csv(f"{folder}/ids")
    >>> env.count(env.read(FileSource(f"{folder}/ids", format="csv", schema="id long")))
    3

    Parameters
    ----------
    path
        A file, a folder or a glob pattern, or several of them.
    format
        One of `FORMATS`.
    schema
        The schema; if None, Spark infers it.
    options
        Options of Spark's reader.
    parallelism
        The number of tasks; if None, inferred from the files.
    listing, cores, note
        Set by the planner: a function that lists the files after partition pruning, the number of concurrent tasks, and
        a function that is called with the reason why there are fewer splits than the volume per task requires, or "".
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
        object.__setattr__(self, "format", _validate_choice(self.format, FORMATS, "format", SourceError))
        check_positive(self.name, self.parallelism)

    @property
    def name(self) -> str:
        """The path, or the first path of several."""
        return self.path if isinstance(self.path, str) else ", ".join(self.path[:1])

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the files' rows as a DataFrame."""
        reader = spark.read.format(self.format).options(**self.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return reader.load(self.path if isinstance(self.path, str) else list(self.path))

    def with_listing(self, listing: Callable[[], FileListing], cores: int, note: Callable[[str], None]) -> FileSource:
        """Return a copy, of the same class, with the fields that the planner sets."""
        source = copy(self)
        vars(source).update(listing=listing, cores=cores, note=note)
        return source

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits of the files, within the upper bound; 0 if there are no files.

        For columnar formats, only the bytes of the columns that are read are counted; see `choose_file_splits`.
        """
        if self.listing is None:
            raise SourceError(f"{self.name} is not part of a plan yet", hint="read it through Environment.read")
        files = self.listing()
        # Count at least 1 byte for a file that is not empty: a splittable file of 0 bytes would have no split.
        sizes = [max(math.ceil(size * files.fraction), min(size, 1)) for size in files.sizes]
        number, reason_for_fewer = choose_file_splits(sizes, files.splittable, context.data_volume_per_task, self.cores)
        if self.note is not None:
            self.note(reason_for_fewer)
        return min(number, context.parallelism_inference_upper_bound)


@dataclass(frozen=True)
class FileSink(SizedFilesSink):
    """A folder of files in a format of Spark; all files become visible together once the job has finished.

    >>> env.write(spark.range(9).selectExpr("id", "id % 2 AS day"), FileSink(f"{folder}/days", partition_by="day"))
    >>> job = env.execute()
    >>> sorted(path.name for path in Path(folder, "days").glob("day=*"))
    ['day=0', 'day=1']

    Parameters
    ----------
    path
        The folder.
    format
        One of `FORMATS`.
    mode
        What to do if the folder exists: ``error``, ``overwrite``, ``append`` or ``ignore``. With partition columns,
        ``overwrite`` replaces only the partitions that get rows if ``spark.sql.sources.partitionOverwriteMode`` (or the
        option ``partitionOverwriteMode``) is ``dynamic`` when the job starts.
    partition_by
        The partition columns, which become folders: a list, or a single name.
    options
        Options of Spark's writer.
    parallelism
        The number of writing tasks. If None: the number of files of the target size; without a target size, the number
        of tasks that compute the rows.
    target_file_size
        The target size of a file on disk, in bytes or as a string such as ``"128 mb"``. If None, the option
        ``sink.target-file-size`` applies if there are `partition_by` columns; else each task writes a file.
    auto_compaction
        Whether files smaller than half the target size are merged within their folder before they become visible;
        parquet and orc only. If None, the option ``sink.auto-compaction`` applies.
    partition_commit
        Policies that run once all files of a partition are visible: ``"success-file"`` creates an empty ``_SUCCESS`` in
        its folder, ``"metastore"`` adds it to `table`; a function is called with a `CommittedPartition`. If None, the
        option ``sink.partition-commit.policy.kind`` applies.
    table
        The table of Spark's catalog whose location is the path; for the policy ``metastore``.
    token
        An idempotency token for these rows, such as the day of a daily load. The folder stores the tokens of its rows.
        If it has this token, the job writes nothing. So a job whose driver died can be repeated at any time, and the
        folder has the rows once.
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
        object.__setattr__(self, "format", _validate_choice(self.format, FORMATS, "format", SinkError))
        columns = columns_of(self.partition_by, f"partition_by of sink {self.path}")
        object.__setattr__(self, "partition_by", columns)
        self._parse_file_size(f"sink {self.path}")
        mode = "error" if self.mode == "errorifexists" else self.mode
        object.__setattr__(self, "mode", _validate_choice(mode, MODES, "mode", SinkError))
        check_positive(f"sink {self.path}", self.parallelism)
        if self.auto_compaction and self.format not in MERGEABLE_FORMATS:
            raise SinkError(
                f"files of format {self.format} cannot be merged: reading them may not return the written rows",
                hint=f"use {' or '.join(MERGEABLE_FORMATS)}, or leave auto_compaction out",
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
    def location(self) -> str:
        """The folder."""
        return location_of(self.path)

    def target_options(self, spark: SparkSession) -> TargetOptions:  # noqa: ARG002
        """Return the options of the writer."""
        return TargetOptions(self.options)

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the steps that are enabled: compaction and partition commit."""
        stages = [*super().stages(options)] if self.format in MERGEABLE_FORMATS else []
        kinds = options.partition_commit if self.partition_commit is None else self.partition_commit
        if kinds and self.partition_by:
            stages.append(commit_stage(kinds, self.name, self.table, f"sink {self.path}"))
        return stages

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        target = HadoopPath(access.bridge, self.path)
        recover_target(access, target)
        if self.token is not None or self.mode == "ignore":  # the committed state decides whether anything is written
            wait_for_commits_at(access, target)

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the folder, and return the job; raise `SinkError` in mode ``error`` if the folder exists."""
        return self.open_folder(spark)

    def open_folder(self, spark: SparkSession, *, of_table: bool = False) -> FileSinkJob:
        """Return the job, as `open` does.

        `of_table` says whether the folder is that of a table. As in Spark, such a folder may exist in mode ``error`` if
        it is empty and not a volume, and gets no ``_SUCCESS`` file if only partitions are replaced.
        """
        target = HadoopPath(Bridge(spark), self.path)
        if not target.name:
            raise SinkError(f"output {self.path} is a whole file system", hint="choose a folder within it")
        volumes = target.volumes_below() if self.mode == "overwrite" or self.partition_by else []
        if volumes:
            raise SinkError(
                f"output {self.path} contains mounted volumes: {', '.join(volumes)}",
                cause="files cannot be renamed across volumes, and readers could see an incomplete copy",
                hint="mount a single volume for the whole output, or write to each volume with a separate sink",
            )
        is_committed = self.token is not None and has_token(target, self.token)
        if target.exists() and not is_committed:
            if self.mode == "error" and not (of_table and not target.is_volume and target.is_empty()):
                raise SinkError.already_exists(self.path)
            if self.mode == "append" and not target.is_folder():
                raise SinkError(f"output {self.path} is a file, not a folder", hint="choose another path")
        flags = {"replaces_partitions": self._replaces_partitions(spark), "is_committed": is_committed}
        job = FileSinkJob(spark, self, target, of_table=of_table, **flags)
        if job.nothing_to_write is None:
            check_rights(self.path, target, appends=self.adds or bool(self.partition_columns))
        return job

    def _replaces_partitions(self, spark: SparkSession) -> bool:
        """Whether an overwrite retains the partitions that get no rows (``partitionOverwriteMode``)."""
        if self.mode != "overwrite" or not self.partition_by:
            return False
        option = {key.lower(): value for key, value in self.options.items()}.get(_OVERWRITE_OPTION.lower())
        mode = str(option or spark.conf.get(f"spark.sql.sources.{_OVERWRITE_OPTION}", "static"))
        return _validate_choice(mode, ("static", "dynamic"), _OVERWRITE_OPTION, SinkError) == "dynamic"
