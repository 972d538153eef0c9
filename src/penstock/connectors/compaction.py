"""Compaction of small files before they become visible."""

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
"""Formats that return exactly the rows that were written, so that rewriting files is safe."""
_SMALL = 0.5
"""The fraction of the target size below which a file is merged with others of its folder."""
_GROUPS_PER_JOB = 64
"""The number of groups of files that a Spark job merges."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """The outcome of a compaction.

    Parameters
    ----------
    before, after
        The number of files before and after.
    merged
        The number of files that were merged.
    merged_bytes
        The total size of the merged files.
    tasks
        The number of tasks.
    """

    before: int
    after: int
    merged: int = 0
    merged_bytes: int = 0
    tasks: int = 0


def report(outcome: Compaction, target: int) -> StageReport:
    """Return the report of a compaction for the web page."""
    if not outcome.merged:
        return StageReport("nothing to merge", f"no folder has two small files ({show_count(outcome.before, 'file')})")
    merged = f"{outcome.merged} of them, {show_bytes(outcome.merged_bytes)} in all"
    reason = f"{merged}, were smaller than half of {show_bytes(target)}"
    return StageReport(f"{show_count(outcome.before, 'file')} into {outcome.after}", reason, outcome.tasks)


def groups_to_merge(files: Iterable[tuple[str, int]], target: int) -> list[list[str]]:
    """Return groups of files, each of which is merged into a single file.

    Parameters
    ----------
    files
        Paths and sizes in bytes.
    target
        The target size of a file in bytes.

    Returns
    -------
    list[list[str]]
        Groups of at least two small files of the same folder, each group of about `target` bytes.
    """
    small: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, size in files:
        if size < _SMALL * target:
            small[path.rpartition("/")[0]].append((path, size))
    groups = []
    for files_of_folder in small.values():
        sizes = [size for _, size in files_of_folder]
        tasks = evenly(sizes, max(1, round(sum(sizes) / target)))
        groups += [[files_of_folder[index][0] for index in indices] for indices in tasks if len(indices) > 1]
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
    """Merge the small files of a folder that is not visible to readers yet; each task merges a group of files.

    Parameters
    ----------
    spark
        The session.
    folder
        The folder of the files.
    format_name
        One of `FORMATS`.
    schema
        The columns of the rows, with the partition columns.
    partition_by
        The partition columns.
    options
        Options of Spark's writer.
    target
        The target size of a file in bytes.
    """
    files = dict(folder.files_below())
    groups = groups_to_merge(files.items(), target)
    merged_folder = folder.parent.child(f"{folder.name}-merged")
    read_schema = _with_string_partitions(schema, partition_by)

    def read(paths: Sequence[str]) -> DataFrame:
        reader = spark.read.format(format_name).schema(read_schema).options(basePath=str(folder), **EVERY_ROW)
        return reader.load([f"{folder}/{path}" for path in paths]).coalesce(1)

    try:
        for start in range(0, len(groups), _GROUPS_PER_JOB):
            rows = reduce(lambda a, b: a.unionByName(b), map(read, groups[start : start + _GROUPS_PER_JOB]))
            columns = [rows[f"`{name.replace('`', '``')}`"] for name in read_schema.names]
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
    replaced = [path for group in groups for path in group]
    return Compaction(
        len(files),
        len(files) - len(replaced) + len(merged),
        len(replaced),
        sum(files[path] for path in replaced),
        len(groups),
    )


def _with_string_partitions(schema: StructType, partition_by: Sequence[str]) -> StructType:
    """Return a schema whose partition columns are strings, so that folder names are preserved.

    A timestamp in a folder name would be parsed in the session's time zone, and written as another timestamp.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    folders = {name.lower() for name in partition_by}
    return StructType(
        [StructField(field.name, StringType()) if field.name.lower() in folders else field for field in schema]
    )
