"""What Parquet files tell of themselves: read once for each file, and whether DuckDB reads them as Spark does."""

from __future__ import annotations

import re
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
_KEPT = 4096
"""Footers that a process keeps, of some kilobytes each."""


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
        The names and types of its columns, as Arrow has them.
    writer
        Who has written it, empty if it does not say so.
    release
        The release of Spark that has written it, None if it was another writer.
    has_legacy_dates
        Whether it says that its dates follow another calendar.
    groups
        Its row groups.
    """

    columns: tuple[tuple[str, str], ...]
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
        for column in read:
            places = [(name, kind) for name, kind in self.columns if name.lower() == column.name.lower()]
            if [name for name, _ in places] != [column.name]:
                raise NotNativeError(f"{path} has the columns {[name for name, _ in places]} for {column.name}")
            there = places[0][1]
            if ("string" if there in _TEXTS else there) != column.arrow:
                raise NotNativeError(f"{column.name} is {there} in {path}, and {column.type} in the table")
        types = {column.type.partition("(")[0] for column in read}
        if "date" in types:
            is_old = calendar != "CORRECTED" if self.release is None else self.release < b"3"
            if is_old or self.has_legacy_dates:
                raise NotNativeError(f"{path} may have dates of another calendar")
        if types & {"string", "decimal"} and not _WRITERS.match(self.writer):
            raise NotNativeError(f"{path} comes from {self.writer or 'an unknown writer'}")


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
            metadata, schema = parquet.metadata, parquet.schema_arrow
    except (OSError, pa.ArrowInvalid) as error:
        raise NotNativeError(str(error)) from error
    known = metadata.metadata or {}
    return Footer(
        tuple((field.name, str(field.type)) for field in schema),
        metadata.created_by or "",
        known.get(_SPARK_VERSION),
        any(key in known for key in _LEGACY),
        _groups(metadata),
    )


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
