"""Source of Parquet files on object stores, which Arrow reads without Hadoop's file systems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from penstock.connectors.core.base import ScanContext, check_positive
from penstock.connectors.core.predicates import ColumnStatistics, might_match
from penstock.connectors.core.split_source import SplitSource, arrow_schema
from penstock.connectors.core.splits import OPEN_COST
from penstock.connectors.core.timeouts import attempt_timeout, timeout
from penstock.connectors.files.partition_commit import NULL_FOLDER_VALUE
from penstock.errors import SourceError, SourceTimeoutError, first_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyspark.sql.types import StructType

Item = TypeVar("Item")
_SPLIT_FACTOR = 2
"""The size, as a multiple of the volume per task, from which a file is split at its row groups."""
_TIMEOUT_MESSAGE = "Timeout was reached"
_MAX_CONCURRENT_REQUESTS = 16
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

    Folders named ``column=value`` are partition columns, of type string. All files must have the same schema.

    >>> ObjectStoreSource("s3://lake/orders", {"region": "eu-west-1"}, parallelism=8).name
    's3://lake/orders'

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
        check_positive(self.uri, self.parallelism)

    @property
    def name(self) -> str:
        """The URI."""
        return self.uri

    @cached_property
    def schema(self) -> StructType:
        """The schema of the first file, followed by the partition columns."""
        from pyarrow import parquet

        first_file = self._files()[0]
        system, root = self._file_system()
        schema: StructType = from_arrow_schema(parquet.read_schema(first_file.path, filesystem=system))
        for column in _partition_values(first_file.path, root):
            schema = schema.add(column, StringType())
        return schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[list[FilePart]]:
        """Return groups of whole files and parts of large files. Small files are not split, to save reading footers."""
        _, root = self._file_system()
        volume = context.data_volume_per_task

        def might_have_rows(file: FilePart) -> bool:
            values = _partition_values(file.path, root)
            columns = {name: ColumnStatistics(value, value, int(value is None), 1) for name, value in values.items()}
            return all(might_match(predicate, columns) for predicate in context.predicates)

        files = [file for file in self._files() if might_have_rows(file)]
        large = [file for file in files if file.size >= _SPLIT_FACTOR * volume]
        with ThreadPoolExecutor(_MAX_CONCURRENT_REQUESTS) as pool:
            parts_of_large = dict(zip(large, pool.map(partial(self._split_file, volume=volume), large), strict=True))
        parts = [part for file in files for part in parts_of_large.get(file, [file])]
        # If the volume per task is small, the costs of opening files must not fill a split.
        return _pack(parts, [part.size + min(OPEN_COST, volume // 4) for part in parts], volume)

    def split_size(self, split: list[FilePart]) -> int:
        """Return the bytes of the files or row groups in the split."""
        return sum(part.size for part in split)

    def read_split(self, split: list[FilePart], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files or row groups, with the partition columns as constants."""
        import pyarrow as pa
        from pyarrow import parquet

        system, root = self._file_system()
        schema = arrow_schema(self.schema, columns)
        for part in split:
            values = _partition_values(part.path, root)
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
            # No timeout for the whole listing: on S3, each of its requests has a timeout.
            with track_work(f"listing the files of {self.uri}"):
                infos = system.get_file_info(fs.FileSelector(root, recursive=True))
        except OSError as error:
            if _TIMEOUT_MESSAGE in str(error):
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

    def _split_file(self, file: FilePart, volume: int) -> list[FilePart]:
        """Split a large file into parts of consecutive row groups, each of about `volume` bytes."""
        from pyarrow import parquet

        system, _ = self._file_system()
        with parquet.ParquetFile(file.path, filesystem=system) as parquet_file:
            metadata = parquet_file.metadata
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        sizes = [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups]
        runs = _pack(range(len(sizes)), sizes, volume) or [[]]  # a part without rows if there are no row groups
        return [FilePart(file.path, sum(sizes[i] for i in run), tuple(run)) for run in runs]


def _pack(items: Iterable[Item], costs: Iterable[int], volume: int) -> list[list[Item]]:
    """Group consecutive items up to a total cost of `volume`; an item with a larger cost is a separate group."""
    packed: list[list[Item]] = []
    filled = 0
    for item, cost in zip(items, costs, strict=True):
        if not packed or filled + cost > volume:
            packed.append([])
            filled = 0
        packed[-1].append(item)
        filled += cost
    return packed


def _partition_values(path: str, root: str) -> dict[str, str | None]:
    """Parse the partition values from the folders between a root and a file."""
    inner = path.removeprefix(root).strip("/").split("/")[:-1]
    pairs = [unquote(part).partition("=") for part in inner if "=" in part]
    return {name: None if value == NULL_FOLDER_VALUE else value for name, _, value in pairs}
