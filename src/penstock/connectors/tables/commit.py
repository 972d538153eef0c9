"""Commit records of files that a new version of a table adds, by optimistic commits.

If another program commits before an upsert, and its files contain any of the keys or a replaced file is gone, the
upsert is computed again from the staged new rows.
"""

from __future__ import annotations

import json
import logging
import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructField, StructType

from penstock.commit import Prepared
from penstock.commit.names import STAGED_ROWS, check_within
from penstock.connectors.core.predicates import Predicate
from penstock.connectors.tables.table_schema import TableColumns, quoted
from penstock.errors import CommitUnknownError, SinkError
from penstock.spark.io.files import EVERY_ROW, read_parquet
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.commit import Access
    from penstock.connectors.tables.table_files import StagedFiles

log = logging.getLogger("penstock.sinks")
MODES = ("append", "overwrite", "upsert")
"""The modes of sinks of tables with keys."""
_UNSUPPORTED = ("map", "array", "struct", "variant", "void", "interval", "geometry", "geography")
"""Types that cannot be keys: they have no equality, or not the same in all programs that use the table."""
_BOUNDED = ("byte", "short", "integer", "long", "string", "date", "decimal")
"""Types whose bounds are used to skip files."""
_FILE = "penstock_file"
_SCHEME = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:/*|^/+")


@dataclass(frozen=True, slots=True)
class Key:
    """The key columns of a table, in the spelling of the table; `where` is the table, for messages."""

    columns: tuple[str, ...]
    where: str

    @classmethod
    def of(cls, columns: Sequence[str], table: StructType, where: str, *, case_sensitive: bool) -> Key:
        """Validate a user's key columns; raise `SinkError` if the table lacks one, or its type cannot be a key."""
        key = StructType([StructField(name, NullType()) for name in columns])
        names = TableColumns(table.fieldNames(), where, case_sensitive).of(key)
        for name in names:
            kind = table[name].dataType
            if kind.typeName().startswith(_UNSUPPORTED) or " collate" in kind.simpleString():
                raise SinkError(
                    f"column {name} of {where} cannot be part of a key",
                    cause=f"it is of type {kind.simpleString()}",
                    hint="give columns of numbers, texts or times",
                )
        return cls(tuple(names), where)

    def check(self, rows: DataFrame) -> tuple[Predicate, ...] | None:
        """Check new rows, and return predicates on their keys for skipping files; None if there are no rows.

        Raise `SinkError` if a key is null, or two rows have the same key: it is undefined which of them replaces the
        old row.
        """
        columns = [rows[quoted(name)] for name in self.columns]
        aggregates = [F.count(F.lit(1)), F.max(reduce(or_, [column.isNull() for column in columns]))]
        bounded = [name for name in self.columns if rows.schema[name].dataType.typeName() in _BOUNDED]
        for name in bounded:
            aggregates += [F.min(quoted(name)), F.max(quoted(name))]
        named = [aggregate.alias(f"v{n}") for n, aggregate in enumerate(aggregates)]
        count, has_null, *bounds = tuple(rows.agg(*named).collect()[0])
        if has_null:
            raise SinkError(
                f"a row for {self.where} has no key",
                cause=f"a column of the key ({', '.join(self.columns)}) is null, and null is equal to nothing",
                hint="leave such rows out, or fill the column",
            )
        keys = [column.alias(f"k{index}") for index, column in enumerate(columns)]
        duplicates = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1").limit(1).collect()
        if duplicates:
            *values, number = tuple(duplicates[0])
            key = ", ".join(f"{name}={value!r}" for name, value in zip(self.columns, values, strict=True))
            raise SinkError(
                f"{number} rows for {self.where} have the key {key}",
                cause="only one row of a key can be in the table, and which of them is undefined",
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

    def files_with(self, table: DataFrame, rows: DataFrame) -> set[str]:
        """Return the files of a table that contain any of the keys, normalized by `plain_path`."""
        columns = [table[quoted(name)].alias(name) for name in self.columns]
        keys = table.select(*columns, F.col("_metadata.file_path").alias(_FILE))
        files = self._joined(keys, rows, "left_semi").select(_FILE).distinct().collect()
        return {plain_path(unquote(row[0])) for row in files}

    def merged(self, table: DataFrame, rows: DataFrame) -> DataFrame:
        """Return the table's rows that are not replaced, and the new rows."""
        return self._joined(table, rows, "left_anti").union(rows.select([rows[quoted(name)] for name in table.columns]))

    def _joined(self, table: DataFrame, rows: DataFrame, how: str) -> DataFrame:
        keys = rows.select([rows[quoted(name)].alias(f"k{index}") for index, name in enumerate(self.columns)])
        pairs: list[Column] = [table[quoted(name)] == keys[f"k{index}"] for index, name in enumerate(self.columns)]
        return table.join(keys, reduce(and_, pairs), how)


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

    `rows` is the folder of the staged new rows, and `schema` their columns, which are those of the table. `root` is the
    folder to which paths of files are relative, empty for absolute paths.
    """

    spark: SparkSession
    key: Key
    rows: str
    schema: StructType
    root: str = ""

    def path_for_spark(self, file: File) -> str:
        """Return the path by which Spark reads a file."""
        return f"{self.root}/{file.path}" if self.root else file.path

    def read(self, files: Iterable[File]) -> DataFrame:
        """Return all rows of files; with `root`, Spark reads the partition values from folder names."""
        options = {"basePath": self.root} if self.root else {}
        paths = [self.path_for_spark(file) for file in files]
        return read_parquet(self.spark, self.schema, paths, **options, **EVERY_ROW)

    @abstractmethod
    def files(self, table: Table, predicates: Sequence[Predicate]) -> list[File]:
        """Return the files of a version that may have rows that match the predicates."""

    def with_folders(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns that become folders."""
        return rows

    def write(self, table: Table | None, staged: StagedFiles) -> tuple[str, ...]:
        """Write the new files of the table; return the paths of the files that they replace."""
        rows = self.new_rows()
        predicates = self.key.check(rows)
        files = [] if table is None or predicates is None else self.files(table, predicates)
        affected = self.with_keys(files, rows)
        if affected:
            rows = self.key.merged(self.read(affected), rows)
        folders: list[Any] = [F.col(quoted(name)) for name in staged.partition_by]
        staged.write(self.with_folders(rows).hint("rebalance", *folders))  # few files of a good size per partition
        return tuple(file.path for file in affected)

    def new_rows(self) -> DataFrame:
        """Return the new rows."""
        return read_parquet(self.spark, self.schema, [self.rows], **EVERY_ROW)

    def with_keys(self, files: Sequence[File], rows: DataFrame) -> list[File]:
        """Return the files that contain any of the keys."""
        if not files:
            return []
        names = self.key.files_with(self.read(files), rows)
        affected = [file for file in files if plain_path(self.path_for_spark(file)) in names]
        if len(affected) != len(names):
            raise SinkError(
                f"{self.key.where} cannot be written",
                cause=f"Spark reads {len(names)} files with replaced rows, and the table names {len(affected)} of them",
                hint="report this, with the names of the table's files",
            )
        return affected

    def still_fits(self, removed: Iterable[str], before: Sequence[File], now: Sequence[File]) -> bool:
        """Return whether the replaced files still exist, and no file that was added since contains any of the keys."""
        if not {file.path for file in now}.issuperset(removed):
            return False
        old = {file.path for file in before}
        return not self.with_keys([file for file in now if file.path not in old], self.new_rows())


def plain_path(path: str) -> str:
    """Return a path without its scheme, so that ``file:/t`` equals ``file:///t``."""
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
    may_land_late: ClassVar[bool] = True
    pauses: ClassVar[tuple[float, ...]]
    """Seconds before each retry after another commit came first."""
    root: str
    """The table's folder, as Spark addresses it."""
    staging: str
    """The folder of the files."""
    schema: str
    """The schema of the rows, as JSON."""
    removed: tuple[str, ...] = ()
    """The paths of the files of the table that these files replace."""

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
        """Return whether a version of the table contains the commit; see `is_committed`."""

    @abstractmethod
    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Commit as the next version after `table`, or as the first version if it is None."""

    @abstractmethod
    def is_conflict(self, access: Access, error: Exception, table: Table | None) -> bool:
        """Return whether the commit onto `table` failed because another commit came first."""

    def is_committed(self, access: Access) -> bool:
        """Return whether the table contains the commit.

        Raise `CommitError` if that is unknown, because the table no longer has the relevant part of its history.
        """
        return self.is_in(self.load_table(access))

    def commit_onto_latest(self, access: Access, commit: Callable[[Table | None], None]) -> None:
        """Commit onto the current version of the table unless it contains the commit; retry after a conflict."""
        for pause in (*self.pauses, None):
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
    """The part of an upsert's commit record that an append does not have: the key and the replaced files.

    `rows` is the folder of the staged new rows, from which the upsert can be computed again.
    """

    key: tuple[str, ...] = ()
    rows: str = ""
    removed: tuple[str, ...] = ()

    def check_names(self) -> None:
        """Also reject a folder of new rows outside the table."""
        super().check_names()
        check_within(self.rows, str(self.folder), STAGED_ROWS)

    def commit_optimistically(self, access: Access) -> list[Self]:
        """Commit onto the current version of the table; recompute and retry if another commit came first.

        Return this record, and those that were computed again; only the last may be committed.
        """
        attempts = [self]

        def commit(table: Table | None) -> None:
            fitting = attempts[-1].fitting(access, table)
            if fitting is not attempts[-1]:
                attempts.append(fitting)
            fitting.commit_onto(access, table)

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
        log.warning("table %s has changed, the upsert is worked out again", self.target)
        return self.recomputed(access, table)

    @abstractmethod
    def is_based_on(self, table: Table | None) -> bool:
        """Return whether the record was computed from this version of the table."""

    @abstractmethod
    def still_fits(self, access: Access, table: Table) -> bool:
        """Return whether the files can be committed unchanged onto a later version; see `Upsert.still_fits`."""

    @abstractmethod
    def recomputed(self, access: Access, table: Table | None) -> Self:
        """Write the files of the upsert for another version of the table, and return their record."""

    def remove_attempt(self, access: Access) -> None:
        """Remove the files of an obsolete attempt; the new rows stay."""
        Folder(access.bridge, self.staging).delete()

    def finish(self, access: Access) -> None:
        """Also remove the folder of the new rows."""
        super().finish(access)
        Folder(access.bridge, self.rows).delete()

    @property
    def table_key(self) -> Key:
        """The key columns of the table."""
        return Key(self.key, f"table {self.target}")
