"""Parquet files and the SQL with which DuckDB reads them.

A task of a *part* (a subplan that DuckDB computes) reads the row groups that start in its file ranges; a single-task
query reads whole files. A file that DuckDB might read differently from Spark raises `NotNativeError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duckdb.worker.engine import NotNativeError, quote_literal
from penstock.duckdb.worker.footers import INT96, read_footer

if TYPE_CHECKING:
    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.footers import Footer

FILE_CHANGED = "has changed since the query was planned"
"""Part of the error for a file that was replaced after planning; the next query may succeed."""
_NO_COLUMNS = "1 AS nothing"
"""Select list of a query that only needs the number of rows."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of bytes of a file, and the state of the file when the query was planned.

    `path` is with or without ``file:``. `modified_ms` is the modification time in milliseconds since 1970, and `size`
    the bytes of the whole file. `partition_values` are the values in the names of the file's folders, as SQL.
    """

    path: str
    start: int
    length: int
    modified_ms: int
    size: int
    partition_values: Sequence[str] = ()

    @property
    def local_path(self) -> str:
        """The path without ``file:``."""
        return self.path.removeprefix("file:")


@dataclass(frozen=True, slots=True)
class Files:
    """How to read the files of a table.

    `read_columns` are stored in the files; there may be none. `rebase_mode` is Spark's ``datetimeRebaseModeInRead``,
    which applies to files that do not name their writer. `partition_columns` have their values in names of folders.
    `compared_columns` are the floating-point and time columns by which Spark's Parquet reader may skip row groups, and
    whether they may be compared with zero, or with a fraction of a millisecond.
    """

    read_columns: tuple[Column, ...]
    rebase_mode: str = "CORRECTED"
    partition_columns: tuple[Column, ...] = ()
    compared_columns: Mapping[str, bool] = field(default_factory=dict)

    def query(self, ranges: Sequence[FileRange]) -> tuple[str, int]:
        """Return a query for the rows of file ranges, and the number of these rows."""
        scans = [scan for file in ranges if (scan := self._range_query(file)) is not None]
        return " UNION ALL ".join(sql for sql, _ in scans) or self._empty_query(), sum(rows for _, rows in scans)

    def whole_files_query(self, ranges: Sequence[FileRange]) -> str:
        """Return a query for the rows of whole files; `ranges` must cover each file completely.

        A file that is listed twice is read twice, as in Spark. Raises `NotNativeError` if DuckDB's rows might differ.
        """
        paths: dict[str, list[str]] = {}
        for file in ranges:
            if file.start == 0 and (footer := self._checked_footer(file)).rows:  # once per file that has rows
                paths.setdefault(self._select_list(file, footer), []).append(_path(file))
        return " UNION ALL ".join(_files_query(*item) for item in paths.items()) or self._empty_query()

    def _empty_query(self) -> str:
        columns = (*self.read_columns, *self.partition_columns)
        nulls = [f"CAST(NULL AS {column.sql_type}) AS {_quoted(column.name)}" for column in columns]
        return "SELECT " + (", ".join(nulls) or _NO_COLUMNS) + " LIMIT 0"

    def _select_list(self, file: FileRange, footer: Footer) -> str:
        columns = [f"{self._value(column, footer)} AS {_quoted(column.name)}" for column in self.read_columns]
        partitions = zip(self.partition_columns, file.partition_values, strict=True)
        columns += [f"{value} AS {_quoted(column.name)}" for column, value in partitions]
        return ", ".join(columns) or _NO_COLUMNS

    def _value(self, column: Column, footer: Footer) -> str:
        """Return the SQL of a stored column's values.

        Statistics of floating-point columns ignore NaN, so `CASE` hides them from DuckDB: it derives statistics through
        functions such as `greatest`, and simplifies `coalesce(x, NULL)`. Spark's reader uses them, and considers
        negative zero less than zero when it searches a dictionary. So if Spark may skip row groups by such a column,
        these values are errors.
        """
        name = _quoted(column.name)
        stored_type = footer.stored_type(column.name)
        if stored_type.startswith("timestamp[ms") and self.compared_columns.get(column.name):
            raise NotNativeError(f"{column.name} is stored in milliseconds, so Spark's reader rounds a condition")
        if column.type == "timestamp" and stored_type == INT96:
            return f"make_timestamptz(epoch_us({name}))"
        if column.type not in {"float", "double"}:
            return name
        value = f"(CASE WHEN {name} IS NULL THEN NULL ELSE {name} END)"
        if column.name not in self.compared_columns:
            return value
        skipped = [f"{value} = 0 AND signbit({value})"] if self.compared_columns[column.name] else []
        skipped += [] if footer.has_nan_statistics else [f"isnan({value})"]
        error = "error('a number that Spark''s reader may skip')"
        return f"CASE WHEN {' OR '.join(skipped)} THEN {error} ELSE {value} END" if skipped else value

    def _range_query(self, file: FileRange) -> tuple[str, int] | None:
        """Return a query for the rows of a file range and their number, None if no row group starts in it."""
        footer = self._checked_footer(file)
        first, end = footer.row_range(file)
        if first == end:
            return None
        if (first, end) == (0, footer.rows):
            return _files_query(self._select_list(file, footer), [_path(file)]), footer.rows
        numbered = f"read_parquet({_path(file)}, hive_partitioning = false, file_row_number = true)"
        where = f"file_row_number >= {first} AND file_row_number < {end}"
        return f"SELECT {self._select_list(file, footer)} FROM {numbered} WHERE {where}", end - first  # noqa: S608 - quoted

    def _checked_footer(self, file: FileRange) -> Footer:
        """Return a file's footer; raise if it has changed, or if DuckDB might read the file differently from Spark."""
        if set("*?[") & set(file.local_path):
            raise NotNativeError(f"DuckDB would read the path {file.path} as a pattern")
        try:
            status = Path(file.local_path).stat()
        except OSError as error:
            raise NotNativeError(str(error)) from error
        if status.st_size != file.size or status.st_mtime_ns // 1_000_000 != file.modified_ms:
            raise NotNativeError(f"{file.path} {FILE_CHANGED}")
        footer = read_footer(file.local_path, status.st_mtime_ns, status.st_size)
        footer.check(file.path, self.read_columns, self.rebase_mode)
        return footer


def _files_query(select_list: str, paths: Sequence[str]) -> str:
    return f"SELECT {select_list} FROM read_parquet([{', '.join(paths)}], hive_partitioning = false)"  # noqa: S608 - quoted


def _path(file: FileRange) -> str:
    return quote_literal(file.local_path)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
