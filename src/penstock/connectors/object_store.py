"""Source of Parquet files on object stores that Arrow can read, and for which Spark has no file system."""

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
from penstock.connectors.timeouts import attempt_timeout, timeout
from penstock.errors import SourceError, SourceTimeoutError, first_line
from penstock.masking import repr_without_secrets
from penstock.threads import track_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyspark.sql.types import StructType

_SPLIT_FACTOR = 2
"""The size, as a multiple of the volume per task, from which a file is split at its row groups."""
_TIMED_OUT = "Timeout was reached"
_REQUESTS = 16
"""The maximum number of concurrent requests for footers."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of a file that a task reads.

    Parameters
    ----------
    path
        The file.
    size
        The approximate size in bytes.
    row_groups
        The indices of the row groups, None for all.
    """

    path: str
    size: int
    row_groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ObjectStoreSource(SplitSource):
    """Parquet files below a URI of an object store, read by Arrow in Spark's Python workers.

    Folders named ``column=value`` are partition columns, of type string. All files have the schema of the first.

    Parameters
    ----------
    uri
        The URI of the folder, such as ``s3://bucket/folder``.
    options
        For an ``s3://`` URI, the arguments of ``pyarrow.fs.S3FileSystem``: ``access_key``, ``secret_key``,
        ``endpoint_override``, ``scheme``, ``region`` ...
    parallelism
        The number of tasks; if None, inferred from the files.
    """

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    parallelism: int | None = None

    uses_predicates = True

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_text(self.uri, "ObjectStoreSource", "a URI, which is a text such as s3://bucket/folder")
        check_settings(self.options, f"the options of {self.uri}")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, self.uri)

    @property
    def name(self) -> str:
        """The URI."""
        return self.uri

    @cached_property
    def schema(self) -> StructType:
        """The schema of the first file, followed by the partition columns.

        Raises
        ------
        SourceError
            If there are no files, or the store cannot be reached.
        """
        from pyarrow import parquet
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StringType

        first = self._files()[0]
        system, root = self._file_system()
        schema: StructType = from_arrow_schema(parquet.read_schema(first.path, filesystem=system))
        for column in _partition(first.path, root):
            schema = schema.add(column, StringType())
        return schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[list[FilePart]]:
        """Return the files packed by size; only large files are split, as that needs their footers."""
        _, root = self._file_system()
        volume = context.data_volume_per_task

        def might_have_rows(file: FilePart) -> bool:
            values = _partition(file.path, root)
            columns = {name: ColumnStatistics(value, value, int(value is None), 1) for name, value in values.items()}
            return all(might_match(predicate, columns) for predicate in context.predicates)

        files = [file for file in self._files() if might_have_rows(file)]
        large = [file for file in files if file.size >= _SPLIT_FACTOR * volume]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            parts = dict(zip(large, pool.map(partial(self._split, volume=volume), large), strict=True))
        return _packed([part for file in files for part in parts.get(file, [file])], volume)

    def split_size(self, split: list[FilePart]) -> int:
        """Return the bytes of a split."""
        return sum(part.size for part in split)

    def read_split(self, split: list[FilePart], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files or row groups."""
        from pyarrow import parquet

        system, root = self._file_system()
        schema = arrow_schema(self.schema, columns)
        for part in split:
            values = _partition(part.path, root)
            with parquet.ParquetFile(part.path, filesystem=system) as file:
                groups = range(file.num_row_groups) if part.row_groups is None else part.row_groups
                data_columns = [name for name in columns if name not in values]
                for batch in file.iter_batches(row_groups=list(groups), columns=data_columns):
                    yield with_partition(batch, schema, values)

    def _file_system(self) -> tuple[FileSystem, str]:
        from pyarrow import fs

        if self.uri.startswith("s3://"):
            timeouts = dict.fromkeys(("connect_timeout", "request_timeout"), attempt_timeout())
            return fs.S3FileSystem(**timeouts | dict(self.options)), self.uri.removeprefix("s3://").rstrip("/")
        system, path = fs.FileSystem.from_uri(self.uri)
        return system, path.rstrip("/")

    def _files(self) -> list[FilePart]:
        from pyarrow import fs

        system, root = self._file_system()
        try:
            with track_work(
                f"listing the files of {self.uri}"
            ):  # no overall timeout: each of many requests has its own
                infos = system.get_file_info(fs.FileSelector(root, recursive=True))
        except OSError as error:
            if _TIMED_OUT in str(error):
                request = "asking for its files"
                raise SourceTimeoutError.of(self.uri, request, timeout(), first_line(error)) from error
            raise SourceError(
                f"{self.uri} cannot be listed", cause=str(error), hint="check the URI and its credentials"
            ) from error
        files = [
            FilePart(info.path, info.size)
            for info in infos
            if info.is_file and info.size and not info.base_name.startswith(("_", "."))
        ]
        if not files:
            raise SourceError(f"there are no files below {self.uri}", hint="check the URI")
        return sorted(files, key=lambda file: file.path)

    def _split(self, file: FilePart, volume: int) -> list[FilePart]:
        """Split a large file into runs of row groups."""
        from pyarrow import parquet

        system, _ = self._file_system()
        with parquet.ParquetFile(file.path, filesystem=system) as parquet_file:
            metadata = parquet_file.metadata
            sizes = [_compressed_size(metadata.row_group(i)) for i in range(metadata.num_row_groups)]
        parts: list[FilePart] = []
        run: list[int] = []
        for group, size in enumerate(sizes):
            if run and sum(sizes[i] for i in run) + size > volume:
                parts.append(FilePart(file.path, sum(sizes[i] for i in run), tuple(run)))
                run = []
            run.append(group)
        return [*parts, FilePart(file.path, sum(sizes[i] for i in run), tuple(run))]


def _compressed_size(row_group: Any) -> int:
    return sum(row_group.column(i).total_compressed_size for i in range(row_group.num_columns))


def _packed(parts: Sequence[FilePart], volume: int) -> list[list[FilePart]]:
    """Pack consecutive parts up to the volume per task; opening a file adds to the cost of a part."""
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
    """Parse the partition values from the folders between a root and a file."""
    inner = path.removeprefix(root).strip("/").split("/")[:-1]
    pairs = [unquote(part).partition("=") for part in inner if "=" in part]
    return {name: None if value == NO_VALUE else value for name, _, value in pairs}
