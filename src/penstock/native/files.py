"""Parquet files as DuckDB reads them.

A task reads the row groups that start in its ranges. What DuckDB might read otherwise than Spark raises
`NotNativeError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.native.errors import NotNativeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.native.columns import Column

_TEXTS = {"large_string", "string_view"}
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys of files whose old dates follow another calendar."""
_SPARK_VERSION = b"org.apache.spark.version"
"""The key of the release of Spark that has written a file; that of Spark 2 follows another calendar, too."""
_WRITERS = re.compile(r"DuckDB|parquet-cpp-arrow version|parquet-(mr version 1\.|rs version )[1-9]\d")
"""Who is known to tell of a column's largest and smallest values in the order of unsigned bytes, as DuckDB takes them.

Old releases of others had another order, which Spark knows of.
"""


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of bytes of a file, and the file as it was when the query was planned.

    Parameters
    ----------
    path
        Where it lies, with or without ``file:``.
    start, length
        The range.
    modified
        Milliseconds since 1970.
    size
        Bytes of the whole file.
    """

    path: str
    start: int
    length: int
    modified: int
    size: int

    @property
    def local(self) -> str:
        """The path for the operating system."""
        return self.path.removeprefix("file:")


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a range of a file: a query for them, and how many there are."""

    sql: str
    rows: int


@dataclass(frozen=True, slots=True)
class Files:
    """How files of a table are read.

    Parameters
    ----------
    read
        The columns that are wanted, none if rows are only counted.
    calendar
        Spark's ``datetimeRebaseModeInRead``, which holds for files that do not tell who has written them.
    """

    read: tuple[Column, ...]
    calendar: str = "CORRECTED"

    def scans(self, files: Sequence[FileRange]) -> list[Scan]:
        """Return queries for the rows of some ranges: one that gives none, if no row group belongs to them."""
        found = [scan for file in files if (scan := self._scan(file)) is not None]
        return found or [Scan("(SELECT " + self._names(empty=True) + " LIMIT 0)", 0)]

    def _names(self, *, empty: bool = False) -> str:
        if not self.read:
            return "1 AS nothing"
        if empty:
            return ", ".join(f"CAST(NULL AS {one.type}) AS {_quoted(one.name)}" for one in self.read)
        return ", ".join(_quoted(one.name) for one in self.read)

    def _scan(self, file: FileRange) -> Scan | None:
        """Return the query for the rows of a range of a file, None if no row group belongs to it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if set("*?[") & set(file.local):
            raise NotNativeError(f"DuckDB would take the path {file.path} for a pattern")
        try:
            found = Path(file.local).stat()
        except OSError as error:
            raise NotNativeError(str(error)) from error
        if found.st_size != file.size or found.st_mtime_ns // 1_000_000 != file.modified:
            raise NotNativeError(f"{file.path} has changed since the query was planned")
        try:
            with pq.ParquetFile(file.local) as parquet:
                self._check(parquet, file.path)
                first, last = _rows(parquet.metadata, file)
                total = parquet.metadata.num_rows
        except pa.ArrowInvalid as error:
            raise NotNativeError(str(error)) from error
        if first == last:
            return None
        path = "'" + file.local.replace("'", "''") + "'"
        if (first, last) == (0, total):
            sql = f"SELECT {self._names()} FROM read_parquet({path}, hive_partitioning = false)"  # noqa: S608 - quoted
            return Scan(sql, total)
        numbered = f"read_parquet({path}, hive_partitioning = false, file_row_number = true)"
        where = f"file_row_number >= {first} AND file_row_number < {last}"
        return Scan(f"SELECT {self._names()} FROM {numbered} WHERE {where}", last - first)  # noqa: S608 - quoted

    def _check(self, parquet: Any, path: str) -> None:
        """Raise if a file has columns that might be read otherwise than Spark reads them."""
        schema = parquet.schema_arrow
        for column in self.read:
            places = [one for one in schema.names if one.lower() == column.name.lower()]
            if places != [column.name]:
                raise NotNativeError(f"{path} has the columns {places} for {column.name}")
            there = str(schema.field(column.name).type)
            if ("string" if there in _TEXTS else there) != column.arrow:
                raise NotNativeError(f"{column.name} is {there} in {path}, and {column.type} in the table")
        types, known = {column.type.partition("(")[0] for column in self.read}, parquet.metadata.metadata or {}
        if "date" in types:
            version = known.get(_SPARK_VERSION)
            is_old = self.calendar != "CORRECTED" if version is None else version < b"3"
            if is_old or any(key in known for key in _LEGACY):
                raise NotNativeError(f"{path} may have dates of another calendar")
        if types & {"string", "decimal"} and not _WRITERS.match(parquet.metadata.created_by or ""):
            raise NotNativeError(f"{path} comes from {parquet.metadata.created_by or 'an unknown writer'}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file: its first row, how many it has, and where its first column starts."""

    first: int
    rows: int
    start: int


def row_groups(metadata: Any, file: FileRange) -> list[RowGroup]:
    """Return the row groups whose first column starts in a range."""
    found, row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        head = group.column(0)
        start = head.data_page_offset
        if head.has_dictionary_page and head.dictionary_page_offset:
            start = min(start, head.dictionary_page_offset)
        if file.start <= start < file.start + file.length:
            found.append(RowGroup(row, group.num_rows, start))
        row += group.num_rows
    return found


def _rows(metadata: Any, file: FileRange) -> tuple[int, int]:
    """Return the first row of the row groups that start in a range, and the first one after them."""
    groups = row_groups(metadata, file)
    if not groups:
        return 0, 0
    if any(one.first + one.rows != other.first for one, other in pairwise(groups)):
        raise NotNativeError(f"the row groups of {file.path} do not lie in their order")
    return groups[0].first, groups[-1].first + groups[-1].rows
