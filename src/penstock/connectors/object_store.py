"""Parquet files that Arrow's file systems reach: object stores for which Spark has no file system of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.arguments import check_settings, check_text
from penstock.connectors.base import ScanContext, checked_parallelism
from penstock.connectors.partition_commit import NO_VALUE
from penstock.connectors.predicates import ColumnStatistics, might_match
from penstock.connectors.split_source import SplitSource, arrow_schema, with_partition
from penstock.connectors.splits import OPEN_COST
from penstock.connectors.timeouts import timeout, timeout_of_attempt
from penstock.errors import SourceError, SourceTimeoutError, first_line
from penstock.masking import repr_without_secrets
from penstock.threads import doing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyspark.sql.types import StructType

_WORTH_A_FOOTER = 2
"""A file of so many times the volume per task is cut, at its row groups; others are read whole, unseen."""
_TIMED_OUT = "Timeout was reached"
_REQUESTS = 16
"""Footers that are asked for at a time."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """What a task reads of a file.

    Parameters
    ----------
    path
        The file.
    size
        About how many bytes.
    row_groups
        The row groups, None for all.
    """

    path: str
    size: int
    row_groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ObjectStoreSource(SplitSource):
    """Parquet files below a place of an object store, read by Arrow in Spark's Python workers.

    Folders named ``column=value`` are partition columns, of type string. All files have the schema of the first.

    Parameters
    ----------
    uri
        The place, such as ``s3://bucket/folder``.
    options
        Of an ``s3://`` place, what ``pyarrow.fs.S3FileSystem`` takes: ``access_key``, ``secret_key``,
        ``endpoint_override``, ``scheme``, ``region`` ...
    parallelism
        The number of tasks, instead of what the files suggest.
    """

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    parallelism: int | None = None

    uses_predicates = True

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_text(self.uri, "ObjectStoreSource", "a place, which is a text such as s3://bucket/folder")
        check_settings(self.options, f"the options of {self.uri}")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, self.uri)

    @property
    def name(self) -> str:
        """The place."""
        return self.uri

    @cached_property
    def schema(self) -> StructType:
        """The schema of the first file, with the partition columns behind it.

        Raises
        ------
        SourceError
            If there are no files, or the place cannot be reached.
        """
        from pyarrow import parquet
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StringType

        first = self._files()[0]
        system, root = self._place()
        schema: StructType = from_arrow_schema(parquet.read_schema(first.path, filesystem=system))
        for column in _partition(first.path, root):
            schema = schema.add(column, StringType())
        return schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[list[FilePart]]:
        """Return the files packed by their bytes; the footers of large ones only are looked at."""
        _, root = self._place()
        volume = context.data_volume_per_task

        def wanted(file: FilePart) -> bool:
            values = _partition(file.path, root)
            known = {name: ColumnStatistics(value, value, int(value is None), 1) for name, value in values.items()}
            return all(might_match(predicate, known) for predicate in context.predicates)

        files = [file for file in self._files() if wanted(file)]
        large = [file for file in files if file.size >= _WORTH_A_FOOTER * volume]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            cut = dict(zip(large, pool.map(partial(self._cut, volume=volume), large), strict=True))
        return _packed([part for file in files for part in cut.get(file, [file])], volume)

    def split_size(self, split: list[FilePart]) -> int:
        """Return the bytes of a split."""
        return sum(part.size for part in split)

    def read_split(self, split: list[FilePart], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read files, or row groups of them."""
        from pyarrow import parquet

        system, root = self._place()
        wanted = arrow_schema(self.schema, columns)
        for part in split:
            values = _partition(part.path, root)
            with parquet.ParquetFile(part.path, filesystem=system) as file:
                groups = range(file.num_row_groups) if part.row_groups is None else part.row_groups
                inside = [name for name in columns if name not in values]
                for batch in file.iter_batches(row_groups=list(groups), columns=inside):
                    yield with_partition(batch, wanted, values)

    def _place(self) -> tuple[FileSystem, str]:
        from pyarrow import fs

        if self.uri.startswith("s3://"):
            waits = dict.fromkeys(("connect_timeout", "request_timeout"), timeout_of_attempt())
            return fs.S3FileSystem(**waits | dict(self.options)), self.uri.removeprefix("s3://").rstrip("/")
        system, path = fs.FileSystem.from_uri(self.uri)
        return system, path.rstrip("/")

    def _files(self) -> list[FilePart]:
        from pyarrow import fs

        system, root = self._place()
        try:
            with doing(f"listing the files of {self.uri}"):  # which may be many: each request is bounded by itself
                found = system.get_file_info(fs.FileSelector(root, recursive=True))
        except OSError as error:
            if _TIMED_OUT in str(error):
                what = "asking for its files"
                raise SourceTimeoutError.of(self.uri, what, timeout(), first_line(error)) from error
            raise SourceError(
                f"{self.uri} cannot be listed", cause=str(error), hint="check the URI and its credentials"
            ) from error
        files = [
            FilePart(info.path, info.size)
            for info in found
            if info.is_file and info.size and not info.base_name.startswith(("_", "."))
        ]
        if not files:
            raise SourceError(f"there are no files below {self.uri}", hint="check the place")
        return sorted(files, key=lambda file: file.path)

    def _cut(self, file: FilePart, volume: int) -> list[FilePart]:
        """Return a large file in runs of row groups."""
        from pyarrow import parquet

        system, _ = self._place()
        with parquet.ParquetFile(file.path, filesystem=system) as opened:
            metadata = opened.metadata
            sizes = [_stored(metadata.row_group(i)) for i in range(metadata.num_row_groups)]
        parts: list[FilePart] = []
        run: list[int] = []
        for group, size in enumerate(sizes):
            if run and sum(sizes[i] for i in run) + size > volume:
                parts.append(FilePart(file.path, sum(sizes[i] for i in run), tuple(run)))
                run = []
            run.append(group)
        return [*parts, FilePart(file.path, sum(sizes[i] for i in run), tuple(run))]


def _stored(row_group: Any) -> int:
    return sum(row_group.column(i).total_compressed_size for i in range(row_group.num_columns))


def _packed(parts: Sequence[FilePart], volume: int) -> list[list[FilePart]]:
    """Return the parts in order, as many together as a task should read; opening a file counts as well."""
    packed: list[list[FilePart]] = []
    filled = 0
    for part in parts:
        cost = part.size + min(OPEN_COST, volume // 4)
        if not packed or filled + cost > volume:
            packed.append([])
            filled = 0
        packed[-1].append(part)
        filled += cost
    return packed


def _partition(path: str, root: str) -> dict[str, str | None]:
    """Return the partition values that the folders between a root and a file name."""
    inner = path.removeprefix(root).strip("/").split("/")[:-1]
    pairs = [unquote(part).partition("=") for part in inner if "=" in part]
    return {name: None if value == NO_VALUE else value for name, _, value in pairs}
