"""Compaction of small files before they become visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyspark.sql.types import StringType, StructField, StructType

from penstock.base.units import show_bytes, show_count
from penstock.config.options import SINK_TARGET_FILE_SIZE
from penstock.connectors.core.base import Sink, SinkStage, StageReport
from penstock.connectors.core.splits import distribute_evenly
from penstock.errors import SinkError
from penstock.spark.io.files import FAIL_ON_UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.core.base import SinkJob, SinkOptions
    from penstock.spark.io.filesystem import HadoopPath

MERGEABLE_FORMATS = ("parquet", "orc")
"""Formats that return exactly the rows that were written, so that rewriting files is safe."""
_SMALL_FRACTION = 0.5
"""The fraction of the target size below which a file is merged with other files of its folder."""
_GROUPS_PER_SPARK_JOB = 64
"""The maximum number of groups of files that a Spark job merges."""


@runtime_checkable
class Compactable(Protocol):
    """A sink job whose files can be compacted before they become visible."""

    def compact(self, target_size: int) -> StageReport:
        """Merge files that are smaller than half of `target_size`, the target size of a file in bytes."""


class SizedFilesSink(Sink):
    """A sink that writes files of a target size; subclasses are data classes with these three fields."""

    mode: str
    target_file_size: int | str | None
    auto_compaction: bool | None

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    def _parse_file_size(self, origin: str) -> None:
        if self.target_file_size is not None:
            object.__setattr__(self, "target_file_size", SINK_TARGET_FILE_SIZE.parse(self.target_file_size, origin))

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the target size of the sink, else of the options; None if no size and no partition columns are set."""
        return self._target_size(options) if self.target_file_size is not None or self.partition_columns else None

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the compaction, if it is enabled."""
        is_enabled = options.auto_compaction if self.auto_compaction is None else self.auto_compaction
        run = partial(_compact, target_size=self._target_size(options))
        return [SinkStage(f"Compaction: {self.name}", run)] if is_enabled else []

    def _target_size(self, options: SinkOptions) -> int:
        return self.target_file_size if isinstance(self.target_file_size, int) else options.target_file_size


def _compact(job: SinkJob, target_size: int) -> StageReport:
    return job.compact(target_size) if isinstance(job, Compactable) else StageReport("nothing", "nothing was written")


def groups_to_merge(files: Iterable[tuple[str, int]], target_size: int) -> list[list[str]]:
    """Return groups of files (paths and sizes in bytes), each of which is merged into a single file.

    A group has at least two small files of the same folder, of about `target_size` bytes in total.
    """
    small: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, size in files:
        if size < _SMALL_FRACTION * target_size:
            small[path.rpartition("/")[0]].append((path, size))
    groups: list[list[str]] = []
    for files_of_folder in small.values():
        paths, sizes = zip(*files_of_folder, strict=True)
        groups += distribute_evenly(paths, sizes, max(1, round(sum(sizes) / target_size)))
    return [group for group in groups if len(group) > 1]


def sample_bytes(
    df: DataFrame, folder: HadoopPath, format_name: str, partition_by: Sequence[str], options: Mapping[str, str]
) -> int:
    """Write sample rows into a folder, remove it, and return the bytes of its files."""
    data_columns = df.drop(*partition_by)  # files do not store partition columns
    try:
        data_columns.write.format(format_name).options(**options).mode("error").save(str(folder))
        return sum(size for _, size in folder.files_below())
    finally:
        folder.delete()


def compact(
    spark: SparkSession,
    folder: HadoopPath,
    format_name: str,
    schema: StructType | None,
    partition_by: Sequence[str],
    options: Mapping[str, str],
    target_size: int,
) -> StageReport:
    """Merge the small files of a folder that is not visible to readers yet; each task merges a group of files.

    `schema` includes the partition columns, and is None if nothing was written. `target_size` is in bytes.
    """
    if schema is None:
        return StageReport("nothing", "nothing was written")
    files = dict(folder.files_below())
    groups = groups_to_merge(files.items(), target_size)
    small_paths = [path for group in groups for path in group]
    merged_folder = folder.parent.child(f"{folder.name}-merged")
    # Partition columns are strings, so that folder names are preserved: a timestamp in a folder name would be parsed in
    # the session's time zone, and written as another timestamp.
    partition_names = {name.lower() for name in partition_by}
    read_schema = StructType(
        [StructField(field.name, StringType()) if field.name.lower() in partition_names else field for field in schema]
    )

    def read(paths: Sequence[str]) -> DataFrame:
        reader = spark.read.format(format_name).schema(read_schema).options(basePath=str(folder), **FAIL_ON_UNREADABLE)
        return reader.load([f"{folder}/{path}" for path in paths]).coalesce(1)

    try:
        for start in range(0, len(groups), _GROUPS_PER_SPARK_JOB):
            rows = reduce(lambda a, b: a.unionByName(b), map(read, groups[start : start + _GROUPS_PER_SPARK_JOB]))
            columns = [rows[f"`{name.replace('`', '``')}`"] for name in read_schema.names]
            writer = rows.select(columns).write.format(format_name).options(**options).mode("append")
            (writer.partitionBy(*partition_by) if partition_by else writer).save(str(merged_folder))
        for path in small_paths:
            folder.child(path).delete()
        new_files = list(merged_folder.files_below()) if groups else []
        for path, _ in new_files:
            if not merged_folder.child(path).move_to(folder.child(path)):
                raise SinkError(f"cannot move {path} to {folder}", cause="the file system refused")
    finally:
        merged_folder.delete()
    count = show_count(len(files), "file")
    if not small_paths:
        return StageReport("nothing to merge", f"no folder has two small files ({count})")
    reason = (
        f"{len(small_paths)} of them, {show_bytes(sum(files[path] for path in small_paths))} in all, were smaller "
        f"than half of {show_bytes(target_size)}"
    )
    return StageReport(f"{count} into {len(files) - len(small_paths) + len(new_files)}", reason, len(groups))
