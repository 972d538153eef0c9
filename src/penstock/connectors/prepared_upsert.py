"""Upserts into the files of a table: computation, and optimistic commit against concurrent commits.

The new rows are staged in a separate folder until the upsert is committed. If another program commits first, and its
files contain any of the keys or a replaced file is gone, the upsert is computed again.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from penstock.commit import Prepared
from penstock.commit.names import STAGED_ROWS, check_within
from penstock.connectors.upsert import Key, plain_path
from penstock.errors import CommitUnknownError, SinkError
from penstock.spark.files import EVERY_ROW, read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access

log = logging.getLogger("penstock.sinks")


class TableFile(Protocol):
    """A file of a table."""

    @property
    def path(self) -> str:
        """The path by which the table refers to the file."""
        ...


File = TypeVar("File", bound=TableFile)
Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class Upsert(ABC, Generic[File]):
    """The computation of an upsert.

    Parameters
    ----------
    spark
        The session.
    key
        The key columns.
    rows
        The folder of the staged new rows.
    schema
        Their columns, which are those of the table.
    """

    spark: SparkSession
    key: Key
    rows: str
    schema: StructType

    @abstractmethod
    def path_for_spark(self, file: File) -> str:
        """Return the path by which Spark reads a file."""

    @abstractmethod
    def read(self, files: Iterable[File]) -> DataFrame:
        """Return all rows of files."""

    def new_rows(self) -> DataFrame:
        """Return the new rows."""
        return read_parquet(self.spark, self.schema, [self.rows], **EVERY_ROW)

    def merged(self, files: Sequence[File], rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """Return new rows merged with the retained rows of the affected files, and the paths of these files."""
        affected = self.with_keys(files, rows)
        return self.key.merged(self.read(affected), rows) if affected else rows, tuple(file.path for file in affected)

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


@dataclass(frozen=True)
class PreparedUpsert(Prepared, Generic[Table]):
    """The part of an upsert's commit record that an append to the same table does not have.

    Parameters
    ----------
    key
        The key columns.
    rows
        The folder of the staged new rows, from which the upsert can be computed again.
    removed
        The replaced files.
    """

    pauses: ClassVar[tuple[float, ...]]
    """Seconds before each retry after another commit came first."""

    key: tuple[str, ...] = ()
    rows: str = ""
    removed: tuple[str, ...] = ()

    def check_names(self) -> None:
        """Also reject a folder of new rows outside the table."""
        super().check_names()
        check_within(self.rows, str(self.folder), STAGED_ROWS)

    def commit_optimistically(self, access: Access) -> list[Self]:
        """Commit onto the current version of the table; recompute and retry if another commit came first.

        Returns
        -------
        list[Self]
            This record, and those that were computed again; only the last may be committed.
        """
        attempts = [self]
        try:
            self._commit_with_retries(attempts, access)
        except CommitUnknownError:  # the last attempt may turn out to be committed
            raise
        except Exception:
            for attempt in attempts[1:]:
                attempt.remove_attempt(access)
            raise
        return attempts

    def _commit_with_retries(self, attempts: list[Self], access: Access) -> None:
        """Commit the last attempt, or a recomputed record, which is appended to the list."""
        for pause in (*self.pauses, None):
            table = self.load_table(access)
            if self.is_in(table):
                return
            fitting = attempts[-1].fitting(access, table)
            if fitting is not attempts[-1]:
                attempts.append(fitting)
            try:
                fitting.commit_onto(access, table)
            except Exception as error:
                if pause is None or not self.is_conflict(access, error, table):
                    raise
                time.sleep(pause)
            else:
                return

    def fitting(self, access: Access, table: Table | None) -> Self:
        """Return a record that fits this version of the table: this record, or a recomputed record.

        `table` is None if the table does not exist.
        """
        if self.is_based_on(table) or (table is not None and self.still_fits(access, table)):
            return self
        log.warning("table %s has changed, the upsert is worked out again", self.target)
        return self.recomputed(access, table)

    @abstractmethod
    def load_table(self, access: Access) -> Table | None:
        """Return the current version of the table, None if it does not exist."""

    @abstractmethod
    def is_in(self, table: Table | None) -> bool:
        """Return whether a version of the table contains the commit; see `is_committed`."""

    @abstractmethod
    def is_based_on(self, table: Table | None) -> bool:
        """Return whether the record was computed from this version of the table."""

    @abstractmethod
    def still_fits(self, access: Access, table: Table) -> bool:
        """Return whether the files can be committed unchanged onto a later version; see `Upsert.still_fits`."""

    @abstractmethod
    def recomputed(self, access: Access, table: Table | None) -> Self:
        """Write the files of the upsert for another version of the table, and return their record."""

    @abstractmethod
    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Commit as the next version after `table`."""

    @abstractmethod
    def is_conflict(self, access: Access, error: Exception, table: Table | None) -> bool:
        """Return whether an error of `commit_onto` means that another commit came first."""

    @abstractmethod
    def remove_attempt(self, access: Access) -> None:
        """Remove the files of an obsolete attempt; the new rows stay."""

    def finish(self, access: Access) -> None:
        """Also remove the folder of the new rows."""
        super().finish(access)
        Folder(access.bridge, self.rows).delete()

    @property
    def table_key(self) -> Key:
        """The key columns of the table."""
        return Key(self.key, f"table {self.target}")
