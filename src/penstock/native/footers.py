"""What Parquet files tell of themselves: read once for each file, and whether DuckDB reads them as Spark does."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.native.errors import NotNativeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.native.columns import Column
    from penstock.native.files import FileRange

_TEXTS = {"large_string", "string_view"}
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys of files whose old dates follow another calendar."""
_SPARK_VERSION = b"org.apache.spark.version"
"""The key of the release of Spark that has written a file; that of Spark 2 follows another calendar, too."""
_WRITERS = re.compile(r"DuckDB|parquet-cpp-arrow version|parquet-(mr version 1\.|rs version )[1-9]\d")
"""Who is known to tell of a column's largest and smallest values in the order of unsigned bytes, as DuckDB takes them.

Old releases of others had another order, which Spark knows of.
"""
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
"""Codecs that both readers have. Spark reads Brotli and LZO only with codecs of other packages, and DuckDB no LZ4 of
Hadoop's format."""
_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
"""Encodings that both readers have for every type in every supported release.

Spark's vectorised reader got others, such as BYTE_STREAM_SPLIT, for some types and in some releases only.
"""
_ADDED = frozenset({"file_row_number", "filename", "file_index", "rowid"})
"""Columns that DuckDB adds to those of a file, under these names."""
_KEPT = 4096
"""Footers that a process keeps, of some kilobytes each."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file.

    Parameters
    ----------
    name
        Its name.
    type
        Its type in Arrow.
    annotation
        Its logical type in Parquet, such as ``STRING``; ``NONE`` if it has none or consists of several columns.
    formats
        The codecs and encodings of its values.
    """

    name: str
    type: str
    annotation: str
    formats: frozenset[str]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file: its first row, how many it has, and where its first column starts."""

    first: int
    rows: int
    start: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file tells of itself.

    Parameters
    ----------
    columns
        Its columns.
    writer
        Who has written it, empty if it does not say so.
    release
        The release of Spark that has written it, None if it was another writer.
    has_legacy_dates
        Whether it says that its dates follow another calendar.
    groups
        Its row groups.
    """

    columns: tuple[FileColumn, ...]
    writer: str
    release: bytes | None
    has_legacy_dates: bool
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(one.rows for one in self.groups)

    def groups_in(self, file: FileRange) -> list[RowGroup]:
        """Return the row groups whose first column starts in a range."""
        return [one for one in self.groups if file.start <= one.start < file.start + file.length]

    def range(self, file: FileRange) -> tuple[int, int]:
        """Return the first row of the row groups that start in a range, and the first one after them."""
        groups = self.groups_in(file)
        if not groups:
            return 0, 0
        if any(one.first + one.rows != other.first for one, other in pairwise(groups)):
            raise NotNativeError(f"the row groups of {file.path} do not lie in their order")
        return groups[0].first, groups[-1].first + groups[-1].rows

    def check(self, path: str, read: Sequence[Column], calendar: str) -> None:
        """Raise if the file has columns that might be read otherwise than Spark reads them.

        Parameters
        ----------
        path
            What the file is called.
        read
            The columns that are wanted.
        calendar
            As of `files.Files`.
        """
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
        """Raise if DuckDB may rename a column: names that differ in case only get a number, until it is a new name."""
        names = Counter(column.name.lower() for column in self.columns)
        repeated = {name for name, count in names.items() if count > 1}
        added = _ADDED & names.keys()
        renamed = [
            column.name for column in read for name in repeated if f"{column.name.lower()}_".startswith(f"{name}_")
        ]
        if renamed or added:
            raise NotNativeError(f"{path} has a column {min([*renamed, *added])} that DuckDB renames")


@lru_cache(maxsize=_KEPT)
def footer_of(path: str, modified: int, size: int) -> Footer:
    """Return what a file tells of itself.

    Parameters
    ----------
    path
        Where it lies.
    modified, size
        What the file system says of it: nanoseconds since 1970, and bytes.

    Raises
    ------
    NotNativeError
        If it cannot be read.
    """
    del modified, size  # another file has others
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as parquet:
            metadata, fields = parquet.metadata, list(parquet.schema_arrow)
    except (OSError, pa.ArrowInvalid) as error:
        raise NotNativeError(str(error)) from error
    known = metadata.metadata or {}
    return Footer(
        _columns(metadata, fields),
        metadata.created_by or "",
        known.get(_SPARK_VERSION),
        any(key in known for key in _LEGACY),
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
    """Return how many columns of Parquet a column of Arrow consists of."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    return sum(_leaf_count(field.type) for field in fields) if fields else 1


def _groups(metadata: Any) -> tuple[RowGroup, ...]:
    found, row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_columns:
            raise NotNativeError("a file without columns")
        head = group.column(0)
        start = head.data_page_offset
        if head.has_dictionary_page and head.dictionary_page_offset:
            start = min(start, head.dictionary_page_offset)
        found.append(RowGroup(row, group.num_rows, start))
        row += group.num_rows
    return tuple(found)
