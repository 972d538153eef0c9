"""Files: parquet, orc, csv, json and text, read and written."""

from __future__ import annotations

import logging
import math
import uuid
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from penstock.config.options import SINK_TARGET_FILE_SIZE
from penstock.connectors.base import (
    ParallelismInferenceContext,
    Sink,
    SinkJob,
    SinkStage,
    Source,
    StageReport,
    checked_parallelism,
)
from penstock.connectors.compaction import FORMATS as FORMATS_TO_MERGE
from penstock.connectors.compaction import compact
from penstock.connectors.partition_commit import MARKER, CommittedPartition, partition_values, policies_of
from penstock.connectors.splits import COARSE, OPEN_COST, count_splits, worth_opening
from penstock.errors import SinkError, SourceError
from penstock.spark.filesystem import Folder, is_marker
from penstock.spark.jvm import Bridge
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.connectors.base import SinkOptions
    from penstock.connectors.partition_commit import PartitionCommitPolicy
    from penstock.spark.files import FileListing

log = logging.getLogger("penstock.sinks")

FORMATS = ("parquet", "orc", "csv", "json", "text")
MODES = ("error", "overwrite", "append", "ignore")
_OVERWRITE_OPTION = "partitionOverwriteMode"


def _checked(value: str, allowed: tuple[str, ...], what: str, error: type[SourceError | SinkError]) -> str:
    word = value.lower()
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
    """

    path: str | Sequence[str]
    format: str = "parquet"
    schema: StructType | str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    parallelism: int | None = None
    listing: Callable[[], FileListing] | None = field(default=None, repr=False, compare=False)
    cores: int | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
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

    def with_listing(self, listing: Callable[[], FileListing], cores: int) -> FileSource:
        """Return the source, which may be of a class of the user's own, as one that is part of a plan."""
        found = copy(self)
        object.__setattr__(found, "listing", listing)
        object.__setattr__(found, "cores", cores)
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
        Columns that become folders.
    options
        Options of Spark's writer.
    parallelism
        The number of writing tasks; if None, what the size of files makes, else that of the upstream.
    target_file_size
        The size that files should have on disk, in bytes or as a text such as ``"128 mb"``. If None, that of the option
        ``sink.target-file-size`` where there are `partition_by` columns, and whatever the upstream's tasks give where
        there are none.
    auto_compaction
        Whether files of half the target size and less are merged within their folder before they become visible;
        parquet and orc only. If None, as the option ``sink.auto-compaction`` says.
    partition_commit
        What is done once all files of a partition are visible: ``"success-file"`` puts an empty ``_SUCCESS`` into its
        folder, ``"metastore"`` adds it to `table`, and functions of a `CommittedPartition` do what they do. If None,
        what the option ``sink.partition-commit.policy.kind`` says.
    table
        The table of Spark's catalogue that lies at the path; for the policy ``metastore``.
    """

    path: str
    format: str = "parquet"
    mode: str = "error"
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    parallelism: int | None = None
    restartable: ClassVar[bool] = True
    target_file_size: int | str | None = None
    auto_compaction: bool | None = None
    partition_commit: Sequence[str | PartitionCommitPolicy] | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", _checked(self.format, FORMATS, "format", SinkError))
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
    def folders_by(self) -> Sequence[str]:
        """The partition columns."""
        return self.partition_by

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

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the folder; refuse one that exists where the mode is ``error``."""
        target = Folder(Bridge(spark), self.path)
        if target.exists():
            if self.mode == "error":
                raise SinkError.exists(self.path)
            if self.mode == "append" and not target.is_folder():
                raise SinkError(f"output {self.path} is a file, not a folder", hint="choose another path")
        return _FileSinkJob(spark, self, target, by_partition=self._replaces_partitions(spark))

    def _replaces_partitions(self, spark: SparkSession) -> bool:
        """Whether an overwrite leaves the partitions that get no rows (``PartitionOverwriteMode``)."""
        if self.mode != "overwrite" or not self.partition_by:
            return False
        given = {key.lower(): value for key, value in self.options.items()}.get(_OVERWRITE_OPTION.lower())
        word = str(given or spark.conf.get(f"spark.sql.sources.{_OVERWRITE_OPTION}", "static"))
        return _checked(word, ("static", "dynamic"), _OVERWRITE_OPTION, SinkError) == "dynamic"


def _compact(job: SinkJob, target: int) -> StageReport:
    assert isinstance(job, _FileSinkJob)
    return job.compact(target)


def _commit_partitions(job: SinkJob, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
    assert isinstance(job, _FileSinkJob)
    return job.commit_partitions(policies)


class _FileSinkJob(SinkJob):
    """Writes into a hidden folder beside the target, and moves it into place."""

    def __init__(self, spark: SparkSession, sink: FileSink, target: Folder, *, by_partition: bool) -> None:
        self._spark = spark
        self._sink = sink
        self._target = target
        self._staging = target.parent.child(f".penstock-{target.name}-{uuid.uuid4().hex[:12]}")
        self._skip = sink.mode == "ignore" and target.exists()
        self._by_partition = by_partition
        self._moved: list[Folder] = []
        self._set_aside: list[tuple[Folder, Folder]] = []
        self._schema: StructType | None = None
        self._partitions: list[str] = []
        self._unmarked: list[Folder] = []

    def sample_size(self, df: DataFrame) -> int:
        if self._skip:
            return 0
        folder = self._staging.parent.child(f"{self._staging.name}-sample")
        inside = df.drop(*self._sink.partition_by)  # folders tell the partition columns, files do not hold them
        try:
            inside.write.format(self._sink.format).options(**self._sink.options).mode("error").save(str(folder))
            return sum(file.size() for file in folder.children() if not file.name.startswith(("_", ".")))
        finally:
            folder.delete()

    def write(self, df: DataFrame) -> None:
        if self._skip:
            return
        writer = df.write.format(self._sink.format).options(**self._sink.options).mode("error")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.save(str(self._staging))
        self._schema = df.schema

    def restart(self) -> bool:
        self._staging.delete()
        return True

    def compact(self, target: int) -> StageReport:
        """Merge small files."""
        if self._schema is None:
            return StageReport("nothing", "nothing was written")
        sink = self._sink
        done = compact(self._spark, self._staging, sink.format, self._schema, sink.partition_by, sink.options, target)
        if not done.merged:
            return StageReport("nothing to merge", f"{show_count(done.before, 'file')}, none small beside another")
        reason = f"{done.merged} of {show_bytes(done.merged_bytes)} were each less than half of {show_bytes(target)}"
        return StageReport(f"{show_count(done.before, 'file')} into {done.after}", reason, done.tasks)

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Apply policies to every partition that was written, now that all its files are visible."""
        for folder in self._partitions:
            values = partition_values(folder)
            partition = CommittedPartition(self._spark, f"{self._target}/{folder}", values, self._sink.table)
            for name, policy in policies:
                try:
                    policy(partition)
                except Exception as error:
                    raise SinkError.partition_commit(name, str(partition), str(self._target), error) from error
        names = ", ".join(name for name, _ in policies)
        return StageReport(show_count(len(self._partitions), "partition"), f"all their files are visible: {names}")

    def commit(self) -> None:
        if self._skip:
            return
        found = self._staging.files_below(unread=True)
        self._partitions = sorted({path.rpartition("/")[0] for path, _ in found} - {""})
        if not self._target.exists():
            self._target.parent.make()
            self._move(self._staging, self._target)
            self._moved.append(self._target)
        elif self._sink.mode == "append":
            self._append(self._staging, self._target)
            self._mark_again()
            self._finish()
        elif self._by_partition:
            self._replace_partitions()
            self._finish()
        elif self._sink.mode == "overwrite":
            self._replace()
        else:
            raise SinkError.exists(self._sink.path)
        self._refresh()

    def abort(self) -> None:
        for folder in self._moved:
            folder.delete()
        restored = [self._put_back(aside, place) for aside, place in self._set_aside]
        if self._by_partition and all(restored):
            self._old.delete()
        self._mark_again()
        self._staging.delete()
        if self._moved:
            self._refresh()

    def _put_back(self, aside: Folder, place: Folder) -> bool:
        """Put a partition back where it was; whether that went well. If not, its rows are kept where they are."""
        try:
            self._move(aside, place)
        except SinkError:
            log.exception("what was to be replaced could not be put back to %s, it lies in %s", place, aside)
            return False
        return True

    def _mark_again(self) -> None:
        for marker in self._unmarked:
            marker.touch()

    def _finish(self) -> None:
        """Leave the folder as Spark does: with its marker, and without what was only needed meanwhile."""
        if self._staging.child(MARKER).exists():
            self._target.child(MARKER).touch()
        self._staging.delete()

    def _refresh(self) -> None:
        """Let cached readers see what was written, as Spark does after a write."""
        try:
            self._spark.catalog.refreshByPath(str(self._target))
        except Exception:
            log.warning("cached readers of %s could not be refreshed", self._target, exc_info=True)

    @property
    def _old(self) -> Folder:
        """Where what is replaced lies meanwhile."""
        return self._staging.parent.child(self._staging.name + "-old")

    def _replace(self) -> None:
        self._move(self._target, self._old)
        try:
            self._move(self._staging, self._target)
        except SinkError:
            self._move(self._old, self._target)
            raise
        self._old.delete()

    def _replace_partitions(self) -> None:
        for folder in self._partitions:
            place, aside = self._target.child(folder), self._old.child(folder)
            if place.exists():
                aside.parent.make()
                self._move(place, aside)
                self._set_aside.append((aside, place))
            place.parent.make()
            self._move(self._staging.child(folder), place)
            self._moved.append(place)
        self._set_aside.clear()
        self._moved.clear()  # from here on the new rows stay: the old ones are gone
        self._old.delete()

    def _append(self, source: Folder, target: Folder) -> None:
        for entry in source.children():
            place = target.child(entry.name)
            if is_marker(entry.name):
                continue
            if entry.is_folder() and place.is_folder():
                marker = place.child(MARKER)
                if marker.exists():  # the partition is not complete until all files are there
                    self._unmarked.append(marker)
                    marker.delete()
                self._append(entry, place)
            else:
                self._move(entry, place)
                self._moved.append(place)

    def _move(self, source: Folder, target: Folder) -> None:
        if target.exists() or not source.move_to(target):
            raise SinkError(f"cannot move {source} to {target}", cause="the file system refused, or the path is taken")
