"""Parquet files as DuckDB reads them.

A task reads the row groups that start in its ranges. What DuckDB might read otherwise than Spark raises
`NotNativeError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.native.engine import quoted
from penstock.native.errors import CHANGED, NotNativeError
from penstock.native.footers import footer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.native.columns import Column
    from penstock.native.footers import Footer

_NOTHING = "1 AS nothing"


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
    values
        The values of the columns that come from the names of its folders, as SQL.
    """

    path: str
    start: int
    length: int
    modified: int
    size: int
    values: Sequence[str] = ()

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
    folders
        The columns that come from the names of folders.
    """

    read: tuple[Column, ...]
    calendar: str = "CORRECTED"
    folders: tuple[Column, ...] = ()

    def scans(self, files: Sequence[FileRange]) -> list[Scan]:
        """Return queries for the rows of some ranges: one that gives none, if no row group belongs to them."""
        found = [scan for file in files if (scan := self._scan(file)) is not None]
        return found or [Scan(self._none(), 0)]

    def whole(self, ranges: Sequence[FileRange]) -> str:
        """Return a query for the rows of whole files, of which there are all ranges.

        A file that is listed twice is read twice, as Spark does.

        Raises
        ------
        NotNativeError
            If DuckDB might read a file otherwise than Spark.
        """
        read: dict[tuple[str, ...], list[FileRange]] = {}
        for file in ranges:
            if file.start == 0 and self._footer(file).rows:
                read.setdefault(tuple(file.values), []).append(file)
        return " UNION ALL ".join(map(self._of_folder, read.values())) or self._none()

    def _of_folder(self, files: Sequence[FileRange]) -> str:
        paths = ", ".join(map(_path, files))
        return f"SELECT {self._names(files[0])} FROM read_parquet([{paths}], hive_partitioning = false)"  # noqa: S608 - quoted

    def _none(self) -> str:
        names = [f"CAST(NULL AS {one.type}) AS {_quoted(one.name)}" for one in (*self.read, *self.folders)]
        return "SELECT " + (", ".join(names) or _NOTHING) + " LIMIT 0"

    def _names(self, file: FileRange) -> str:
        names = [_quoted(one.name) for one in self.read]
        names += [f"{value} AS {_quoted(one.name)}" for one, value in zip(self.folders, file.values, strict=True)]
        return ", ".join(names) or _NOTHING

    def _scan(self, file: FileRange) -> Scan | None:
        """Return the query for the rows of a range of a file, None if no row group belongs to it."""
        footer = self._footer(file)
        first, last = footer.range(file)
        if first == last:
            return None
        if (first, last) == (0, footer.rows):
            sql = f"SELECT {self._names(file)} FROM read_parquet({_path(file)}, hive_partitioning = false)"  # noqa: S608 - quoted
            return Scan(sql, footer.rows)
        numbered = f"read_parquet({_path(file)}, hive_partitioning = false, file_row_number = true)"
        where = f"file_row_number >= {first} AND file_row_number < {last}"
        return Scan(f"SELECT {self._names(file)} FROM {numbered} WHERE {where}", last - first)  # noqa: S608 - quoted

    def _footer(self, file: FileRange) -> Footer:
        """Return what a file tells of itself; raise if it has changed, or DuckDB might read it otherwise than Spark."""
        if set("*?[") & set(file.local):
            raise NotNativeError(f"DuckDB would take the path {file.path} for a pattern")
        try:
            found = Path(file.local).stat()
        except OSError as error:
            raise NotNativeError(str(error)) from error
        if found.st_size != file.size or found.st_mtime_ns // 1_000_000 != file.modified:
            raise NotNativeError(f"{file.path} {CHANGED}")
        footer = footer_of(file.local, found.st_mtime_ns, found.st_size)
        footer.check(file.path, self.read, self.calendar)
        return footer


def _path(file: FileRange) -> str:
    return quoted(file.local)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
