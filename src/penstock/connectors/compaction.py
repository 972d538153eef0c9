"""Merging files that turned out too small, before anybody sees them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from penstock.connectors.base import StageReport
from penstock.connectors.splits import evenly
from penstock.errors import SinkError
from penstock.spark.files import EVERY_ROW
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.filesystem import Folder

FORMATS = ("parquet", "orc")
"""Formats whose files give exactly the rows that were written, so that they may be written once more."""
_SMALL = 0.5
"""A file of less than this part of the wanted size is merged with others of its folder."""
_TOGETHER = 64
"""Groups of files that one Spark job merges."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was merged.

    Parameters
    ----------
    before, after
        How many files there were and are in all.
    merged
        How many of them were merged.
    merged_bytes
        What these held.
    tasks
        How many tasks did it.
    """

    before: int
    after: int
    merged: int = 0
    merged_bytes: int = 0
    tasks: int = 0


def report(done: Compaction, target: int) -> StageReport:
    """Return what the page tells of a merge."""
    if not done.merged:
        return StageReport("nothing to merge", f"no folder has two small files ({show_count(done.before, 'file')})")
    reason = (
        f"{done.merged} of them, {show_bytes(done.merged_bytes)} in all, were smaller than half of {show_bytes(target)}"
    )
    return StageReport(f"{show_count(done.before, 'file')} into {done.after}", reason, done.tasks)


def groups_to_merge(files: Iterable[tuple[str, int]], target: int) -> list[list[str]]:
    """Return which files become one each.

    Parameters
    ----------
    files
        Paths and bytes.
    target
        The bytes a file should have.

    Returns
    -------
    list[list[str]]
        Groups of at least two small files of one folder, of about `target` bytes each.
    """
    small: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, size in files:
        if size < _SMALL * target:
            small[path.rpartition("/")[0]].append((path, size))
    groups = []
    for found in small.values():
        sizes = [size for _, size in found]
        tasks = evenly(sizes, max(1, round(sum(sizes) / target)))
        groups += [[found[index][0] for index in indices] for indices in tasks if len(indices) > 1]
    return groups


def compact(
    spark: SparkSession,
    folder: Folder,
    format_name: str,
    schema: StructType,
    partition_by: Sequence[str],
    options: Mapping[str, str],
    target: int,
) -> Compaction:
    """Merge the small files of a folder that nobody reads yet; each group of them by one task.

    Parameters
    ----------
    spark
        The session.
    folder
        Where Spark has written them.
    format_name
        One of `FORMATS`.
    schema
        What was written, the partition columns included.
    partition_by
        The columns that are folders.
    options
        Options of Spark's writer.
    target
        The bytes a file should have.
    """
    files = dict(folder.files_below())
    groups = groups_to_merge(files.items(), target)
    merged_folder = folder.parent.child(f"{folder.name}-merged")
    written = _with_folders_as_texts(schema, partition_by)

    def read(paths: Sequence[str]) -> DataFrame:
        reader = spark.read.format(format_name).schema(written).options(basePath=str(folder), **EVERY_ROW)
        return reader.load([f"{folder}/{path}" for path in paths]).coalesce(1)

    try:
        for start in range(0, len(groups), _TOGETHER):
            rows = reduce(lambda a, b: a.unionByName(b), map(read, groups[start : start + _TOGETHER]))
            columns = [rows[f"`{name.replace('`', '``')}`"] for name in written.names]
            writer = rows.select(columns).write.format(format_name).options(**options).mode("append")
            (writer.partitionBy(*partition_by) if partition_by else writer).save(str(merged_folder))
        for path in (path for group in groups for path in group):
            folder.child(path).delete()
        merged = list(merged_folder.files_below()) if groups else []
        for path, _ in merged:
            if not merged_folder.child(path).move_to(folder.child(path)):
                raise SinkError(f"cannot move {path} to {folder}", cause="the file system refused")
    finally:
        merged_folder.delete()
    gone = [path for group in groups for path in group]
    return Compaction(
        len(files), len(files) - len(gone) + len(merged), len(gone), sum(files[path] for path in gone), len(groups)
    )


def _with_folders_as_texts(schema: StructType, partition_by: Sequence[str]) -> StructType:
    """Return a schema whose partition columns are texts: the names of their folders come back as they were.

    A time in a folder's name would be taken for one of the session's zone, and be written as another.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    folders = {name.lower() for name in partition_by}
    return StructType(
        [StructField(field.name, StringType()) if field.name.lower() in folders else field for field in schema]
    )
