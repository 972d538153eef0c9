"""Footers of Parquet files, read once for each file, and checks that DuckDB reads the file as Spark does."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker.errors import NotNativeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.files import FileRange

_TEXTS = {"large_string", "string_view"}
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Metadata keys of files whose old dates follow the Julian calendar."""
_SPARK_VERSION = b"org.apache.spark.version"
"""Metadata key of the Spark release that wrote a file; dates written by Spark 2 follow the Julian calendar, too."""
_WRITERS = re.compile(r"DuckDB|parquet-cpp-arrow version|parquet-(mr version 1\.|rs version )[1-9]\d")
"""Writers that order the minimum and maximum of a column by unsigned bytes, as DuckDB assumes.

Old releases of other writers used a different order, which Spark takes into account.
"""
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
"""Codecs that both readers have. Spark needs extra packages for Brotli and LZO; DuckDB cannot read Hadoop's LZ4."""
_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
"""Encodings that both readers support for every type in every supported release.

Spark's vectorised reader supports others, such as BYTE_STREAM_SPLIT, only for some types and in some releases.
"""
_ADDED = frozenset({"file_row_number", "filename", "file_index", "rowid"})
"""Columns that DuckDB adds to those of a file, under these names."""
_CACHED_FOOTERS = 4096
"""Footers that a process caches, a few kilobytes each."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a Parquet file.

    `annotation` is the Parquet logical type, such as ``STRING``; ``NONE`` if there is none or the column is nested.
    `formats` are the codecs and encodings of the column's chunks.
    """

    name: str
    type: str
    annotation: str
    formats: frozenset[str]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file: its first row, its number of rows, and the byte offset of its first column."""

    first: int
    rows: int
    start: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The parts of a Parquet footer that decide whether DuckDB can read the file.

    Parameters
    ----------
    writer
        The program that wrote the file, empty if the file does not name it.
    release
        The release of Spark that wrote the file, None for other writers.
    has_legacy_dates
        Whether the file declares dates of the Julian calendar.
    """

    columns: tuple[FileColumn, ...]
    writer: str
    release: bytes | None
    has_legacy_dates: bool
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(group.rows for group in self.groups)

    def groups_in(self, file: FileRange) -> list[RowGroup]:
        """Return the row groups whose first column starts in a range."""
        return [group for group in self.groups if file.start <= group.start < file.start + file.length]

    def range(self, file: FileRange) -> tuple[int, int]:
        """Return the first row, and the row after the last, of the row groups that start in a range."""
        groups = self.groups_in(file)
        if not groups:
            return 0, 0
        if any(group.first + group.rows != following.first for group, following in pairwise(groups)):
            raise NotNativeError(f"the row groups of {file.path} are not stored in order")
        return groups[0].first, groups[-1].first + groups[-1].rows

    def check(self, path: str, read: Sequence[Column], calendar: str) -> None:
        """Raise if DuckDB might read the file differently from Spark."""
        self._check_names(path, read)
        by_name = {column.name: column for column in self.columns}
        for column in read:
            stored = by_name.get(column.name)
            if stored is None:
                raise NotNativeError(f"{path} has no column {column.name}")
            if ("string" if stored.type in _TEXTS else stored.type) != column.arrow:
                raise NotNativeError(f"{column.name} is {stored.type} in {path}, and {column.type} in the table")
            if column.type == "string" and stored.annotation != "STRING":
                raise NotNativeError(f"{column.name} is annotated as {stored.annotation} in {path}, and not as STRING")
            unsupported = stored.formats - _CODECS - _ENCODINGS
            if unsupported:
                raise NotNativeError(f"{column.name} is stored in the format {min(unsupported)} in {path}")
        types = {column.type.partition("(")[0] for column in read}
        if "date" in types:
            is_old = calendar != "CORRECTED" if self.release is None else self.release < b"3"
            if is_old or self.has_legacy_dates:
                raise NotNativeError(f"{path} may have dates of another calendar")
        if types & {"string", "decimal"} and not _WRITERS.match(self.writer):
            raise NotNativeError(f"{path} comes from {self.writer or 'an unknown writer'}")

    def _check_names(self, path: str, read: Sequence[Column]) -> None:
        """Raise if DuckDB may rename a column: it numbers names that differ only in case until they are unique."""
        names = Counter(column.name.lower() for column in self.columns)
        repeated = {name for name, count in names.items() if count > 1}
        added = _ADDED & names.keys()
        renamed = [
            column.name for column in read for name in repeated if f"{column.name.lower()}_".startswith(f"{name}_")
        ]
        if renamed or added:
            raise NotNativeError(f"{path} has a column {min([*renamed, *added])} that DuckDB renames")


@lru_cache(maxsize=_CACHED_FOOTERS)
def read_footer(path: str, modified: int, size: int) -> Footer:
    """Return the footer of a file.

    Raises `NotNativeError` if the file cannot be read.

    Parameters
    ----------
    modified, size
        Modification time in nanoseconds since 1970, and size in bytes: part of the cache key.
    """
    del modified, size  # only part of the cache key
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as parquet:
            metadata, fields = parquet.metadata, list(parquet.schema_arrow)
    except (OSError, pa.ArrowInvalid) as error:
        raise NotNativeError(str(error)) from error
    key_values = metadata.metadata or {}
    return Footer(
        _columns(metadata, fields),
        metadata.created_by or "",
        key_values.get(_SPARK_VERSION),
        any(key in key_values for key in _LEGACY),
        _groups(metadata),
    )


def _columns(metadata: Any, fields: Sequence[Any]) -> tuple[FileColumn, ...]:
    columns, leaf = [], 0
    for field in fields:
        leaves = range(leaf, leaf + _leaf_count(field.type))
        leaf = leaves.stop
        chunks = [
            metadata.row_group(group).column(number) for group in range(metadata.num_row_groups) for number in leaves
        ]
        annotation = metadata.schema.column(leaves.start).logical_type.type if len(leaves) == 1 else "NONE"
        formats = {chunk.compression for chunk in chunks}.union(*(chunk.encodings for chunk in chunks))
        columns.append(FileColumn(field.name, str(field.type), annotation, frozenset(formats)))
    if leaf != metadata.num_columns:
        raise NotNativeError(f"a file with {metadata.num_columns} columns has a schema of {leaf}")
    return tuple(columns)


def _leaf_count(kind: Any) -> int:
    """Return the number of Parquet columns that an Arrow type consists of."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    return sum(_leaf_count(field.type) for field in fields) if fields else 1


def _groups(metadata: Any) -> tuple[RowGroup, ...]:
    groups, row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_columns:
            raise NotNativeError("a file without columns")
        head = group.column(0)
        start = head.data_page_offset
        if head.has_dictionary_page and head.dictionary_page_offset:
            start = min(start, head.dictionary_page_offset)
        groups.append(RowGroup(row, group.num_rows, start))
        row += group.num_rows
    return tuple(groups)
