"""Source of Parquet files on object stores that Arrow can read, and for which Spark has no file system."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType

from penstock.base.arguments import check_settings, check_text
from penstock.base.masking import repr_without_secrets
from penstock.base.threads import track_work
from penstock.connectors.core.base import ScanContext, check_parallelism
from penstock.connectors.core.predicates import ColumnStatistics, might_match
from penstock.connectors.core.split_source import SplitSource, arrow_schema
from penstock.connectors.core.splits import OPEN_COST
from penstock.connectors.core.timeouts import attempt_timeout, timeout
from penstock.connectors.files.partition_commit import NO_VALUE
from penstock.errors import SourceError, SourceTimeoutError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyspark.sql.types import StructType

Item = TypeVar("Item")
_SPLIT_FACTOR = 2
"""The size, as a multiple of the volume per task, from which a file is split at its row groups."""
_TIMED_OUT = "Timeout was reached"
_REQUESTS = 16
"""The maximum number of concurrent requests for footers."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The row groups of a file that a task reads (None for all), and their approximate size in bytes."""

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
        check_parallelism(self.uri, self.parallelism)

    @property
    def name(self) -> str:
        """The URI."""
        return self.uri

    @cached_property
    def schema(self) -> StructType:
        """The schema of the first file, followed by the partition columns."""
        from pyarrow import parquet

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
        split = [part for file in files for part in parts.get(file, [file])]
        return _packed(split, [part.size + min(OPEN_COST, volume // 4) for part in split], volume)

    def split_size(self, split: list[FilePart]) -> int:
        """Return the bytes of a split."""
        return sum(part.size for part in split)

    def read_split(self, split: list[FilePart], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files or row groups, with the partition columns as constants."""
        import pyarrow as pa
        from pyarrow import parquet

        system, root = self._file_system()
        schema = arrow_schema(self.schema, columns)
        for part in split:
            values = _partition(part.path, root)
            with parquet.ParquetFile(part.path, filesystem=system) as file:
                groups = range(file.num_row_groups) if part.row_groups is None else part.row_groups
                data_columns = [name for name in columns if name not in values]
                for batch in file.iter_batches(row_groups=list(groups), columns=data_columns):
                    arrays = [
                        pa.array([values[field.name]] * batch.num_rows, field.type)
                        if field.name in values
                        else batch.column(field.name).cast(field.type)
                        for field in schema
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

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
            # No overall timeout: each of many requests has its own.
            with track_work(f"listing the files of {self.uri}"):
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
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        sizes = [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups]
        runs = _packed(range(len(sizes)), sizes, volume) or [[]]
        return [FilePart(file.path, sum(sizes[i] for i in run), tuple(run)) for run in runs]


def _packed(items: Iterable[Item], costs: Iterable[int], volume: int) -> list[list[Item]]:
    """Pack consecutive items up to a total cost of `volume`; an item of a larger cost is alone."""
    packed: list[list[Item]] = []
    filled = 0
    for item, cost in zip(items, costs, strict=True):
        if not packed or filled + cost > volume:
            packed.append([])
            filled = 0
        packed[-1].append(item)
        filled += cost
    return packed


def _partition(path: str, root: str) -> dict[str, str | None]:
    """Parse the partition values from the folders between a root and a file."""
    inner = path.removeprefix(root).strip("/").split("/")[:-1]
    pairs = [unquote(part).partition("=") for part in inner if "=" in part]
    return {name: None if value == NO_VALUE else value for name, _, value in pairs}
