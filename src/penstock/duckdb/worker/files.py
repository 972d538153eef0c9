"""Parquet files and the SQL with which DuckDB reads them.

A task reads the row groups that start in its ranges. Files that DuckDB might read differently from Spark raise
`NotNativeError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duckdb.worker.engine import quote_literal
from penstock.duckdb.worker.errors import CHANGED, NotNativeError
from penstock.duckdb.worker.footers import read_footer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.footers import Footer

_NOTHING = "1 AS nothing"


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of bytes of a file, and the state of the file when the query was planned.

    Parameters
    ----------
    path
        The file's path, with or without ``file:``.
    modified
        Modification time, milliseconds since 1970.
    size
        Size of the whole file in bytes.
    values
        The values of the partition columns from the names of the file's folders, as SQL.
    """

    path: str
    start: int
    length: int
    modified: int
    size: int
    values: Sequence[str] = ()

    @property
    def local(self) -> str:
        """The path without ``file:``."""
        return self.path.removeprefix("file:")


@dataclass(frozen=True, slots=True)
class Files:
    """How to read the files of a table.

    Parameters
    ----------
    read
        The columns to read; empty if rows are only counted.
    calendar
        Spark's ``datetimeRebaseModeInRead``, which applies to files that do not name their writer.
    folders
        The partition columns, whose values come from the names of folders.
    """

    read: tuple[Column, ...]
    calendar: str = "CORRECTED"
    folders: tuple[Column, ...] = ()

    def query(self, ranges: Sequence[FileRange]) -> tuple[str, int]:
        """Return a query for the rows of file ranges, and the number of rows."""
        scans = [scan for file in ranges if (scan := self._scan(file)) is not None]
        return " UNION ALL ".join(sql for sql, _ in scans) or self._empty_query(), sum(rows for _, rows in scans)

    def whole_files_query(self, ranges: Sequence[FileRange]) -> str:
        """Return a query for the rows of whole files; `ranges` must cover each file completely.

        A file that is listed twice is read twice, as in Spark. Raises `NotNativeError` if DuckDB might read a file
        differently from Spark.
        """
        by_folder: dict[tuple[str, ...], list[FileRange]] = {}
        for file in ranges:
            if file.start == 0 and self._footer(file).rows:
                by_folder.setdefault(tuple(file.values), []).append(file)
        return " UNION ALL ".join(map(self._folder_query, by_folder.values())) or self._empty_query()

    def _folder_query(self, files: Sequence[FileRange]) -> str:
        paths = ", ".join(map(_path, files))
        return f"SELECT {self._select_list(files[0])} FROM read_parquet([{paths}], hive_partitioning = false)"  # noqa: S608 - quoted

    def _empty_query(self) -> str:
        names = [f"CAST(NULL AS {column.type}) AS {_quoted(column.name)}" for column in (*self.read, *self.folders)]
        return "SELECT " + (", ".join(names) or _NOTHING) + " LIMIT 0"

    def _select_list(self, file: FileRange) -> str:
        names = [_quoted(column.name) for column in self.read]
        names += [f"{value} AS {_quoted(column.name)}" for column, value in zip(self.folders, file.values, strict=True)]
        return ", ".join(names) or _NOTHING

    def _scan(self, file: FileRange) -> tuple[str, int] | None:
        """Return a query for the rows of a file range and their number, None if no row group starts in it."""
        footer = self._footer(file)
        first, last = footer.range(file)
        if first == last:
            return None
        if (first, last) == (0, footer.rows):
            return self._folder_query([file]), last
        numbered = f"read_parquet({_path(file)}, hive_partitioning = false, file_row_number = true)"
        where = f"file_row_number >= {first} AND file_row_number < {last}"
        return f"SELECT {self._select_list(file)} FROM {numbered} WHERE {where}", last - first  # noqa: S608 - quoted

    def _footer(self, file: FileRange) -> Footer:
        """Return a file's footer; raise if the file has changed, or DuckDB might read it differently from Spark."""
        if set("*?[") & set(file.local):
            raise NotNativeError(f"DuckDB would take the path {file.path} for a pattern")
        try:
            status = Path(file.local).stat()
        except OSError as error:
            raise NotNativeError(str(error)) from error
        if status.st_size != file.size or status.st_mtime_ns // 1_000_000 != file.modified:
            raise NotNativeError(f"{file.path} {CHANGED}")
        footer = read_footer(file.local, status.st_mtime_ns, status.st_size)
        footer.check(file.path, self.read, self.calendar)
        return footer


def _path(file: FileRange) -> str:
    return quote_literal(file.local)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
