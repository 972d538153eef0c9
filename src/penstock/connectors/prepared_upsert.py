"""An upsert into the files of a table: how it is worked out, and how it is committed whatever others commit meanwhile.

The new rows lie in a folder of their own until the upsert is committed. If another program's commit came first, its
files are looked at too, and the upsert is worked out again if they hold one of the keys, or if a file is gone.
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
        """Its name among the table's files."""
        ...


File = TypeVar("File", bound=TableFile)
Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class Upsert(ABC, Generic[File]):
    """What an upsert needs to be worked out.

    Parameters
    ----------
    spark
        The session.
    key
        The columns that tell rows apart.
    rows
        The folder of the new rows.
    schema
        Their columns, which are the table's.
    """

    spark: SparkSession
    key: Key
    rows: str
    schema: StructType

    @abstractmethod
    def place_of(self, file: File) -> str:
        """Return where Spark finds a file."""

    @abstractmethod
    def read(self, files: Iterable[File]) -> DataFrame:
        """Return all rows of files."""

    def new_rows(self) -> DataFrame:
        """Return the new rows."""
        return read_parquet(self.spark, self.schema, [self.rows], **EVERY_ROW)

    def merged(self, files: Sequence[File], rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """Return rows with those that stay of the files that are replaced for them, and the paths of these files."""
        found = self.with_keys(files, rows)
        return self.key.merged(self.read(found), rows) if found else rows, tuple(one.path for one in found)

    def with_keys(self, files: Sequence[File], rows: DataFrame) -> list[File]:
        """Return the files that have a row with one of the keys."""
        if not files:
            return []
        names = self.key.files_with(self.read(files), rows)
        found = [one for one in files if plain_path(self.place_of(one)) in names]
        if len(found) != len(names):
            raise SinkError(
                f"{self.key.where} cannot be written",
                cause=f"Spark reads {len(names)} files with replaced rows, and the table names {len(found)} of them",
                hint="report this, with the names of the table's files",
            )
        return found

    def still_fits(self, removed: Iterable[str], before: Sequence[File], now: Sequence[File]) -> bool:
        """Whether the replaced files are still there, and no file that has come since has one of the keys."""
        if not {one.path for one in now}.issuperset(removed):
            return False
        known = {one.path for one in before}
        return not self.with_keys([one for one in now if one.path not in known], self.new_rows())


@dataclass(frozen=True)
class PreparedUpsert(Prepared, Generic[Table]):
    """What the record of an upsert has besides that of an append to the same table.

    Parameters
    ----------
    key
        The columns that tell rows apart.
    rows
        The folder of the new rows, from which all can be worked out again.
    removed
        The files that are replaced.
    """

    pauses: ClassVar[tuple[float, ...]]
    """Seconds before each further try, if another commit came first."""

    key: tuple[str, ...] = ()
    rows: str = ""
    removed: tuple[str, ...] = ()

    def check_names(self) -> None:
        """Refuse a folder of new rows that is not within the table, too."""
        super().check_names()
        check_within(self.rows, str(self.folder), STAGED_ROWS)

    def commit_what_fits(self, access: Access) -> list[Self]:
        """Commit onto the version that was looked at; look again if there is a newer one.

        Returns
        -------
        list[Self]
            This, and what was worked out again; only the last may be committed.
        """
        tried = [self]
        try:
            self._commit_one_of(tried, access)
        except CommitUnknownError:  # the last may be committed yet
            raise
        except Exception:
            for useless in tried[1:]:
                useless.remove_attempt(access)
            raise
        return tried

    def _commit_one_of(self, tried: list[Self], access: Access) -> None:
        """Commit what was tried last, or what is worked out anew, which is added to the list."""
        for pause in (*self.pauses, None):
            table = self.look(access)
            if self.is_in(table):
                return
            fitting = tried[-1].fitting(access, table)
            if fitting is not tried[-1]:
                tried.append(fitting)
            try:
                fitting.commit_onto(access, table)
            except Exception as error:
                if pause is None or not self.came_too_late(access, error, table):
                    raise
                time.sleep(pause)
            else:
                return

    def fitting(self, access: Access, table: Table | None) -> Self:
        """Return what fits a table as it is now, None if there is none: this, or what is worked out again."""
        if self.has_seen(table) or (table is not None and self.still_fits(access, table)):
            return self
        log.warning("table %s has changed, the upsert is worked out again", self.target)
        return self.worked_out_again(access, table)

    @abstractmethod
    def look(self, access: Access) -> Table | None:
        """Return the table as it is now."""

    @abstractmethod
    def is_in(self, table: Table | None) -> bool:
        """Whether it is committed, up to a version of the table; see `is_committed`."""

    @abstractmethod
    def has_seen(self, table: Table | None) -> bool:
        """Whether this is the version that was looked at."""

    @abstractmethod
    def still_fits(self, access: Access, table: Table) -> bool:
        """Whether a later version may get the files as they are; see `Upsert.still_fits`."""

    @abstractmethod
    def worked_out_again(self, access: Access, table: Table | None) -> Self:
        """Write the files that fit a version."""

    @abstractmethod
    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Commit as the version after one."""

    @abstractmethod
    def came_too_late(self, access: Access, error: Exception, table: Table | None) -> bool:
        """Whether an error of `commit_onto` a version says that another commit came first."""

    @abstractmethod
    def remove_attempt(self, access: Access) -> None:
        """Remove the files of an attempt that can no longer be committed; the new rows stay."""

    def finish(self, access: Access) -> None:
        """Remove the folder of the new rows, too."""
        super().finish(access)
        Folder(access.bridge, self.rows).delete()

    @property
    def table_key(self) -> Key:
        """The columns that tell rows apart, and the table."""
        return Key(self.key, f"table {self.target}")
