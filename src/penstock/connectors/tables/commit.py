"""Commit records of Delta and Iceberg tables. They list the files that an optimistic commit adds as a new version.

Another program may commit before an upsert. If that commit adds rows with keys of the upsert, or removes a file that
the upsert replaces, the files of the upsert are obsolete: Penstock recomputes them from the staged new rows.
"""

from __future__ import annotations

import json
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructField, StructType

from penstock.commit import Prepared
from penstock.commit.names import STAGED_FOLDER, check_within
from penstock.connectors.core.predicates import Predicate
from penstock.connectors.tables.table_schema import TableColumns, quoted
from penstock.errors import CommitUnknownError, SinkError
from penstock.spark.io.files import FAIL_ON_UNREADABLE, read_parquet
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.commit import Access
    from penstock.connectors.tables.table_files import StagedFiles

log = logging.getLogger("penstock.sinks")
MODES = ("append", "overwrite", "upsert")
"""The modes of sinks that support upserts."""
_UNSUPPORTED_KEY_TYPES = ("map", "array", "struct", "variant", "void", "interval", "geometry", "geography")
"""Types that cannot be keys: they have no equality, or programs that use the table compare them differently."""
_TYPES_WITH_BOUNDS = ("byte", "short", "integer", "long", "string", "date", "decimal")
"""Key types whose bounds (minimum and maximum) are used to skip files."""
_FILE_COLUMN = "penstock_file"  # the file of a row
_SCHEME = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:/*|^/+")


@dataclass(frozen=True, slots=True)
class Key:
    """The key columns of a table, in the spelling of the table; `where` names the table in messages."""

    columns: tuple[str, ...]
    where: str

    @classmethod
    def of(cls, columns: Sequence[str], table: StructType, where: str, *, case_sensitive: bool) -> Key:
        """Validate a user's key columns; raise `SinkError` if the table lacks one, or its type cannot be a key."""
        key = StructType([StructField(name, NullType()) for name in columns])  # only the names matter
        names = TableColumns(table.fieldNames(), where, case_sensitive).resolve(key)
        for name in names:
            data_type = table[name].dataType
            if data_type.typeName().startswith(_UNSUPPORTED_KEY_TYPES) or " collate" in data_type.simpleString():
                raise SinkError(
                    f"column {name} of {where} cannot be part of a key",
                    cause=f"it is of type {data_type.simpleString()}",
                    hint="use key columns of numbers, strings or times",
                )
        return cls(tuple(names), where)

    def check(self, rows: DataFrame) -> tuple[Predicate, ...] | None:
        """Check new rows, and return predicates on their keys for skipping files; None if there are no rows.

        Raise `SinkError` if a key is null, or two rows have the same key: either could replace the old row.
        """
        columns = [rows[quoted(name)] for name in self.columns]
        aggregates = [F.count(F.lit(1)), F.max(reduce(or_, [column.isNull() for column in columns]))]
        bounded = [name for name in self.columns if rows.schema[name].dataType.typeName() in _TYPES_WITH_BOUNDS]
        for name in bounded:
            aggregates += [F.min(quoted(name)), F.max(quoted(name))]
        named = [aggregate.alias(f"v{n}") for n, aggregate in enumerate(aggregates)]
        count, has_null, *bounds = tuple(rows.agg(*named).collect()[0])
        if has_null:
            raise SinkError(
                f"a row for {self.where} has no key",
                cause=f"a column of the key ({', '.join(self.columns)}) is null, and null equals no value",
                hint="leave such rows out, or fill the column",
            )
        keys = [column.alias(f"k{index}") for index, column in enumerate(columns)]
        duplicates = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1").limit(1).collect()
        if duplicates:
            *values, row_count = tuple(duplicates[0])
            key = ", ".join(f"{name}={value!r}" for name, value in zip(self.columns, values, strict=True))
            raise SinkError(
                f"{row_count} rows for {self.where} have the key {key}",
                cause="the table can have only a single row with a key, and it is undefined which row that is",
                hint="keep a single row of each key, as df.dropDuplicates does, or an aggregate or window by the key",
            )
        if not count:
            return None
        ranges = zip(bounded, bounds[::2], bounds[1::2], strict=True)
        return tuple(
            Predicate(operator, name, (bound,))
            for name, low, high in ranges
            for operator, bound in ((">=", low), ("<=", high))
        )

    def paths_with_keys(self, table: DataFrame, rows: DataFrame) -> set[str]:
        """Return the paths of the files of `table` with any of the keys of `rows`, normalized by `strip_scheme`."""
        columns = [table[quoted(name)].alias(name) for name in self.columns]
        keys = table.select(*columns, F.col("_metadata.file_path").alias(_FILE_COLUMN))
        files = self._joined(keys, rows, "left_semi").select(_FILE_COLUMN).distinct().collect()
        return {strip_scheme(unquote(row[0])) for row in files}

    def merge(self, table: DataFrame, rows: DataFrame) -> DataFrame:
        """Return the table's rows that are not replaced, and the new rows."""
        return self._joined(table, rows, "left_anti").union(rows.select([rows[quoted(name)] for name in table.columns]))

    def _joined(self, table: DataFrame, rows: DataFrame, how: str) -> DataFrame:
        keys = rows.select([rows[quoted(name)].alias(f"k{index}") for index, name in enumerate(self.columns)])
        equalities: list[Column] = [table[quoted(name)] == keys[f"k{index}"] for index, name in enumerate(self.columns)]
        return table.join(keys, reduce(and_, equalities), how)


class TableFile(Protocol):
    """A file of a table."""

    @property
    def path(self) -> str:
        """The path by which the table refers to the file."""
        ...


File = TypeVar("File", bound=TableFile)
Table = TypeVar("Table")


@dataclass(frozen=True)
class Upsert(ABC, Generic[Table, File]):
    """The computation of an upsert.

    `rows_folder` has the staged new rows, with the columns `schema`, which are those of the table. `root` is the folder
    to which paths of files are relative, empty for absolute paths.
    """

    spark: SparkSession
    key: Key
    rows_folder: str
    schema: StructType
    root: str = ""

    def path_for_spark(self, file: File) -> str:
        """Return the path by which Spark reads a file."""
        return f"{self.root}/{file.path}" if self.root else file.path

    def read(self, files: Iterable[File]) -> DataFrame:
        """Return all rows of files; with `root`, Spark reads the partition values from folder names."""
        options = {"basePath": self.root} if self.root else {}
        paths = [self.path_for_spark(file) for file in files]
        return read_parquet(self.spark, self.schema, paths, **options, **FAIL_ON_UNREADABLE)

    @abstractmethod
    def files(self, table: Table, predicates: Sequence[Predicate]) -> list[File]:
        """Return the files of a version that may have rows that match the predicates."""

    def with_folder_columns(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns added whose values name the partition folders; by default unchanged."""
        return rows

    def write(self, table: Table | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write new files with the merged rows of the table; return the paths of the files that they replace."""
        rows = self.new_rows()
        predicates = self.key.check(rows)
        files = [] if table is None or predicates is None else self.files(table, predicates)
        affected = self.files_with_keys(files, rows)
        if affected:
            rows = self.key.merge(self.read(affected), rows)
        folders: list[Any] = [F.col(quoted(name)) for name in staged.partition_by]
        staged.write(self.with_folder_columns(rows).hint("rebalance", *folders))  # few files per partition
        return tuple(file.path for file in affected)

    def new_rows(self) -> DataFrame:
        """Return the staged new rows."""
        return read_parquet(self.spark, self.schema, [self.rows_folder], **FAIL_ON_UNREADABLE)

    def files_with_keys(self, files: Sequence[File], rows: DataFrame) -> list[File]:
        """Return those of `files` that contain any of the keys of `rows`."""
        if not files:
            return []
        paths = self.key.paths_with_keys(self.read(files), rows)
        affected = [file for file in files if strip_scheme(self.path_for_spark(file)) in paths]
        if len(affected) != len(paths):
            raise SinkError(
                f"{self.key.where} cannot be written",
                cause=f"Spark reads {len(paths)} files with rows to replace, of which the table has {len(affected)}",
                hint="report this, with the names of the table's files",
            )
        return affected

    def still_fits(self, removed: Iterable[str], base_files: Sequence[File], current_files: Sequence[File]) -> bool:
        """Whether the files to replace (`removed`) still exist, and no file added since `base_files` has the keys."""
        if not {file.path for file in current_files}.issuperset(removed):
            return False
        base_paths = {file.path for file in base_files}
        added_files = [file for file in current_files if file.path not in base_paths]
        return not self.files_with_keys(added_files, self.new_rows())


def strip_scheme(path: str) -> str:
    """Return a path without its scheme and leading slashes, so that ``file:/t`` equals ``file:///t``."""
    return _SCHEME.sub("", path)


def check_mode(mode: str, key: str | Sequence[str]) -> None:
    """Reject an unknown mode, an upsert without a key, and a key in another mode."""
    if mode not in MODES:
        raise SinkError(f"mode {mode!r} is not valid", hint=f"give one of {', '.join(MODES)}")
    if (mode == "upsert") != bool(key):
        raise SinkError(f"mode {mode!r} with key {tuple(key)}", hint="mode upsert needs a key; other modes take none")


class PreparedTableFiles(Prepared, Generic[Table]):
    """Commit record of files that a version of a table adds; subclasses define the fields that journals store."""

    is_reversible: ClassVar[bool] = False
    may_succeed_late: ClassVar[bool] = True
    retry_pauses: ClassVar[tuple[float, ...]]
    """Seconds before each retry of a commit that lost against another commit."""
    root: str
    """The table's folder, as Spark addresses it."""
    staging: str
    """The staging folder of the new files."""
    schema: str
    """The schema of the rows, as JSON."""
    removed: tuple[str, ...] = ()
    """The paths of the table's files that the new files replace."""

    @property
    def folder(self) -> str:
        """The table's folder."""
        return self.root

    @property
    def row_type(self) -> StructType:
        """The schema of the rows."""
        return StructType.fromJson(json.loads(self.schema))

    @abstractmethod
    def load_table(self, access: Access) -> Table | None:
        """Return the current version of the table, None if it does not exist."""

    @abstractmethod
    def is_in(self, table: Table | None) -> bool:
        """Whether a version of the table contains the commit; see `is_committed`."""

    @abstractmethod
    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Commit as the next version after `table`, or as the first version if it is None."""

    @abstractmethod
    def is_conflict(self, access: Access, error: Exception, table: Table | None) -> bool:
        """Whether the commit onto `table` failed because another commit came first."""

    def is_committed(self, access: Access) -> bool:
        """Whether the table contains the commit.

        Raise `CommitError` if that is unknown, because the relevant part of the table's history was deleted.
        """
        return self.is_in(self.load_table(access))

    def commit_onto_latest(self, access: Access, commit: Callable[[Table | None], None]) -> None:
        """Call `commit` with the latest version of the table, unless it has this commit; retry after a conflict."""
        for pause in (*self.retry_pauses, None):
            table = self.load_table(access)
            if self.is_in(table):
                return
            try:
                commit(table)
            except Exception as error:
                if pause is None or not self.is_conflict(access, error, table):
                    raise
                time.sleep(pause)
            else:
                return


@dataclass(frozen=True)
class PreparedUpsert(PreparedTableFiles[Table], Generic[Table]):
    """Commit record of an upsert: also has the key, the new rows, and the files that the new files replace.

    `rows` is the folder of the staged new rows, from which the upsert can be computed again.
    """

    key: tuple[str, ...] = ()
    rows: str = ""
    removed: tuple[str, ...] = ()

    def check_names(self) -> None:
        """Also reject a folder of new rows outside the table."""
        super().check_names()
        check_within(self.rows, str(self.folder), STAGED_FOLDER)

    def commit_optimistically(self, access: Access) -> list[Self]:
        """Commit this record, or a recomputed record if it does not fit the table's version; retry after a conflict.

        Return this record and the recomputed records; only the last of them can have been committed.
        """
        attempts = [self]

        def commit(table: Table | None) -> None:
            record = attempts[-1].fitting(access, table)
            if record is not attempts[-1]:
                attempts.append(record)
            record.commit_onto(access, table)

        try:
            self.commit_onto_latest(access, commit)
        except CommitUnknownError:  # the last attempt may turn out to be committed
            raise
        except Exception:
            for attempt in attempts[1:]:
                attempt.remove_attempt(access)
            raise
        return attempts

    def fitting(self, access: Access, table: Table | None) -> Self:
        """Return a record that fits this version of the table: this record, or a recomputed record.

        `table` is None if the table does not exist.
        """
        if self.is_based_on(table) or (table is not None and self.still_fits(access, table)):
            return self
        log.warning("table %s has changed, so the upsert is recomputed", self.target)
        return self.recomputed(access, table)

    @abstractmethod
    def is_based_on(self, table: Table | None) -> bool:
        """Whether the record was computed from this version of the table."""

    @abstractmethod
    def still_fits(self, access: Access, table: Table) -> bool:
        """Whether the files can be committed unchanged onto a later version; see `Upsert.still_fits`."""

    @abstractmethod
    def recomputed(self, access: Access, table: Table | None) -> Self:
        """Write the files of the upsert for another version of the table, and return their record."""

    def remove_attempt(self, access: Access) -> None:
        """Remove the files of an obsolete attempt; the new rows stay."""
        HadoopPath(access.bridge, self.staging).delete()

    def finish(self, access: Access) -> None:
        """Also remove the folder of the new rows."""
        super().finish(access)
        HadoopPath(access.bridge, self.rows).delete()

    @property
    def table_key(self) -> Key:
        """The key columns of the table."""
        return Key(self.key, f"table {self.target}")
