"""Footers of Parquet files, which are cached, and checks that DuckDB reads the files as Spark does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker.engine import NotNativeError

if TYPE_CHECKING:
    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.files import FileRange

INT96 = "int96"
"""The type of a column with timestamps of 96 bits, as Spark writes them unless it is set to write 64 bits."""
_TYPES = {
    "string": re.compile(r"string|large_string|string_view"),
    "timestamp": re.compile(rf"timestamp\[(us|ms), tz=.*\]|{INT96}"),
    "timestamp_ntz": re.compile(r"timestamp\[(us|ms)\]"),
}
"""Arrow's types of stored columns that both engines read as a type of Spark; for other types a single type."""
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Metadata keys of files whose old dates follow the Julian calendar."""
_SPARK_VERSION_KEY = b"org.apache.spark.version"
"""Metadata key of the Spark release that wrote a file; dates written by Spark 2 follow the Julian calendar, too."""
_SUPPORTED_WRITERS = re.compile(r"DuckDB|parquet-cpp-arrow version|parquet-(mr version 1\.|rs version )[1-9]\d")
"""Writers whose minimum and maximum of a column are ordered by unsigned bytes, as DuckDB assumes.

Other writers may use a different order, which Spark takes into account.
"""
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
"""Codecs of both Spark and DuckDB. Spark needs extra packages for Brotli and LZO; DuckDB cannot read Hadoop's LZ4."""
_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
"""Encodings that Spark and DuckDB support for every type in every supported release.

Spark's vectorized reader supports others, such as BYTE_STREAM_SPLIT, only for some types and in some releases.
"""
_ADDED_COLUMNS = frozenset({"file_row_number", "filename", "file_index", "rowid"})
"""Names of columns that DuckDB adds to those of a file."""
_MAX_CACHED_FOOTERS = 4096
"""Maximum number of footers in memory, of a few kilobytes each."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a Parquet file.

    `type` is the Arrow type, or `INT96`. `annotation` is the Parquet logical type, such as ``STRING``, or ``NONE`` if
    there is none or if the column is nested and has several leaves. `formats` are the codecs and encodings of its
    chunks.
    """

    name: str
    type: str
    annotation: str
    formats: frozenset[str]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file: its first row, its number of rows, and the offset of its first column in the file."""

    first_row: int
    rows: int
    start_byte: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The parts of a Parquet footer that decide whether DuckDB can read the file, and its row groups.

    `writer` is the program that wrote the file, empty if the file does not name it. `spark_release` is None for other
    writers than Spark. `has_legacy_dates` says whether the file declares dates of the Julian calendar.
    """

    columns: tuple[FileColumn, ...]
    writer: str
    spark_release: bytes | None
    has_legacy_dates: bool
    row_groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(group.rows for group in self.row_groups)

    @property
    def has_nan_statistics(self) -> bool:
        """Whether statistics show NaN: for Parquet's Java writer, NaN is a maximum, which its reader ignores."""
        return self.writer.startswith("parquet-mr ")

    def stored_type(self, name: str) -> str:
        """Return the type of a column."""
        return next(column.type for column in self.columns if column.name == name)

    def row_groups_in(self, file: FileRange) -> list[RowGroup]:
        """Return the row groups whose first column starts in a file range."""
        return [group for group in self.row_groups if file.start <= group.start_byte < file.start + file.length]

    def row_range(self, file: FileRange) -> tuple[int, int]:
        """Return the first row and the end (exclusive) of the row groups that start in a file range; (0, 0) if none."""
        groups = self.row_groups_in(file)
        if not groups:
            return 0, 0
        if any(group.first_row + group.rows != following.first_row for group, following in pairwise(groups)):
            raise NotNativeError(f"the row groups of {file.path} are not stored in order")
        return groups[0].first_row, groups[-1].first_row + groups[-1].rows

    def check(self, path: str, read_columns: Sequence[Column], rebase_mode: str) -> None:
        """Raise `NotNativeError` if DuckDB might read the file differently from Spark."""
        self._check_names(path, read_columns)
        by_name = {column.name: column for column in self.columns}
        for column in read_columns:
            stored = by_name.get(column.name)
            if stored is None:
                raise NotNativeError(f"{path} has no column {column.name}")
            if not _TYPES.get(column.type, re.compile(re.escape(str(column.arrow_type())))).fullmatch(stored.type):
                raise NotNativeError(f"{column.name} is {stored.type} in {path}, and {column.type} in the table")
            if column.type == "string" and stored.annotation != "STRING":
                raise NotNativeError(f"{column.name} is annotated as {stored.annotation} in {path}, and not as STRING")
            unsupported = stored.formats - _CODECS - _ENCODINGS
            if unsupported:
                raise NotNativeError(f"{column.name} is stored in the format {min(unsupported)} in {path}")
        types = {column.type.partition("(")[0] for column in read_columns}
        if types & {"date", "timestamp", "timestamp_ntz"}:
            is_julian = rebase_mode != "CORRECTED" if self.spark_release is None else self.spark_release < b"3"
            if is_julian or self.has_legacy_dates:
                raise NotNativeError(f"{path} may have dates and times of the Julian calendar")
        if types & {"string", "decimal"} and not _SUPPORTED_WRITERS.match(self.writer):
            writer = self.writer or "an unknown program"
            raise NotNativeError(f"{path} was written by {writer}, whose column statistics may be in another order")

    def _check_names(self, path: str, read_columns: Sequence[Column]) -> None:
        """Raise if DuckDB may rename a column: names that differ only in case get numbers, except the first of them."""
        names = Counter(column.name.lower() for column in self.columns)
        repeated = {name for name, count in names.items() if count > 1}
        added = _ADDED_COLUMNS & names.keys()
        read_names = [column.name for column in read_columns]
        renamed = [name for name in read_names if any(f"{name.lower()}_".startswith(f"{base}_") for base in repeated)]
        if renamed or added:
            raise NotNativeError(f"{path} has a column {min([*renamed, *added])} that DuckDB renames")


@lru_cache(maxsize=_MAX_CACHED_FOOTERS)
def read_footer(path: str, modified: int, size: int) -> Footer:
    """Return the footer of a file; raises `NotNativeError` if the file cannot be read.

    `modified` (in any unit) and `size` are only part of the cache key.
    """
    del modified, size
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
        key_values.get(_SPARK_VERSION_KEY),
        any(key in key_values for key in _LEGACY_KEYS),
        _row_groups(metadata),
    )


def _columns(metadata: Any, fields: Sequence[Any]) -> tuple[FileColumn, ...]:
    columns, leaf = [], 0
    for field in fields:
        leaves = range(leaf, leaf + _leaf_count(field.type))
        leaf = leaves.stop
        chunks = [
            metadata.row_group(group).column(number) for group in range(metadata.num_row_groups) for number in leaves
        ]
        stored = metadata.schema.column(leaves.start) if len(leaves) == 1 else None
        annotation = stored.logical_type.type if stored else "NONE"
        type_name = INT96 if stored and stored.physical_type == "INT96" else str(field.type)
        formats = {chunk.compression for chunk in chunks}.union(*(chunk.encodings for chunk in chunks))
        columns.append(FileColumn(field.name, type_name, annotation, frozenset(formats)))
    if leaf != metadata.num_columns:
        raise NotNativeError(f"a file has {metadata.num_columns} columns, but its schema describes {leaf}")
    return tuple(columns)


def _leaf_count(arrow_type: Any) -> int:
    """Return the number of Parquet columns that an Arrow type consists of."""
    fields = [arrow_type.field(number) for number in range(arrow_type.num_fields)]
    return sum(_leaf_count(field.type) for field in fields) if fields else 1


def _row_groups(metadata: Any) -> tuple[RowGroup, ...]:
    groups, row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_columns:
            raise NotNativeError("a file without columns")
        first_column = group.column(0)
        start = first_column.data_page_offset
        if first_column.has_dictionary_page and first_column.dictionary_page_offset:
            start = min(start, first_column.dictionary_page_offset)
        groups.append(RowGroup(row, group.num_rows, start))
        row += group.num_rows
    return tuple(groups)
