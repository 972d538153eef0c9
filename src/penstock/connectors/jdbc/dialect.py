"""What a database can tell of a table before it is read, and how the table is cut."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Database(Protocol):
    """A connection to ask."""

    def rows(self, statement: str, *values: str) -> list[tuple[str | None, ...]]:
        """Run a query and return its rows as texts."""

    def run(self, statement: str, *values: str) -> int:
        """Run a statement that gives no rows."""

    def begin(self) -> None:
        """Begin a transaction."""


_SHARE = 2
_PART = r"""("([^"]|"")+"|`([^`]|``)+`|[^\W\d][\w$]*)"""
_NAME = re.compile(rf"{_PART}(\.{_PART})*")


class KeyKind(StrEnum):
    """How the values of a type are compared."""

    WHOLE = "whole numbers"
    DECIMAL = "decimal numbers"
    TEXT = "texts"
    """Equal texts are equal everywhere; their order is not the same, and others may be equal too."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of a database.

    Parameters
    ----------
    table
        A table's name, or a query in parentheses with an alias, as the user wrote it.
    columns
        The columns to read; all names are unquoted.
    conditions
        The filters that go with it, in the database's SQL.
    quote
        Quotes a column's name.
    """

    table: str
    columns: tuple[str, ...]
    conditions: tuple[str, ...]
    quote: Callable[[str], str]

    @property
    def is_table(self) -> bool:
        """Whether it is a name, and not a query or anything else that may follow a FROM."""
        return _NAME.fullmatch(self.table.strip()) is not None

    @property
    def statement(self) -> str:
        """The query that reads it in one piece."""
        where = " AND ".join(f"({condition})" for condition in self.conditions)
        columns = ", ".join(map(self.quote, self.columns)) or "1"
        return f"SELECT {columns} FROM {self.table}" + (f" WHERE {where}" if where else "")


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """What a database's own statistics tell of a request.

    Parameters
    ----------
    rows
        About how many rows it gives.
    row_bytes
        About how many bytes a row has.
    cut
        Returns conditions for at most so many splits.
    how
        What the splits are made of, in words.
    """

    rows: float
    row_bytes: float
    cut: Callable[[Database, int], list[str | None]]
    how: str


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index, by which a database finds the row that an upsert replaces.

    Parameters
    ----------
    columns
        Its columns, in small letters; an expression is an empty text.
    filled
        Those that get a value in rows that leave them out: a default, a generated one, 0 where nothing is strict.
    is_whole
        Whether it is of whole columns only, no expressions and no beginnings of texts.
    """

    columns: frozenset[str]
    filled: frozenset[str]
    is_whole: bool

    def may_replace_another(self, key: frozenset[str], written: frozenset[str]) -> bool:
        """Whether a row that is equal in it may have another key, where rows with some columns are written."""
        return not (self.is_whole and self.columns >= key) and self.columns - self.filled <= written


def in_one_piece(_database: Database, _count: int) -> list[str | None]:
    """Return the only split of what cannot be cut."""
    return [None]


class JdbcDialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    prefixes: ClassVar[tuple[str, ...]]
    """How its URLs begin."""
    fetch_size: ClassVar[int] = 10_000
    """Rows fetched at a time; without a number some drivers hold a whole result in memory."""
    no_snapshot: ClassVar[str] = ""
    """Why several splits cannot read one snapshot, empty if they can."""
    comparable: ClassVar[Mapping[str, KeyKind]] = {}
    """The types, by names in small letters, whose values are compared as Spark compares them."""
    transactional: ClassVar[str] = ""
    """What is added to CREATE TABLE so that a transaction that is not committed leaves no rows."""

    isolation: ClassVar[str] = ""
    """What a transaction begins with, so that one that replaces rows sees, or waits for, all that others commit."""
    patience: ClassVar[str] = ""
    """What makes a transaction give up a lock that is not had within a minute; empty where it does so by itself."""
    has_users: ClassVar[bool] = True
    """Whether a connection is one of a user."""

    def located(self, url: str) -> str:
        """Return a URL that means the same database in every working directory."""
        return url

    def lock(self, database: Database, table: str) -> None:  # noqa: B027
        """Keep others from writing to a table until the transaction ends, where its rows are to be replaced."""

    def waits(self, seconds: float) -> dict[str, str]:  # noqa: ARG002
        """Return the driver's properties by which a connection is given up that cannot be made in time."""
        return {}

    def asking_waits(self, seconds: float) -> dict[str, str]:
        """Return the same for a connection that only asks for statistics: no answer takes longer either."""
        return self.waits(seconds)

    @abstractmethod
    def estimate(self, database: Database, request: Request) -> TableEstimate:
        """Return what the statistics tell, without reading the table."""

    def export_snapshot(self, database: Database) -> str | None:  # noqa: ARG002
        """Hold a snapshot open in a connection; return the statement by which other transactions see the same one."""
        return None

    @abstractmethod
    def has_table(self, database: Database, table: str) -> bool:
        """Whether there is a table of this name."""

    @abstractmethod
    def tables_like(self, database: Database, table: str) -> list[str]:
        """Return the tables whose names begin with that of `table`, in its schema."""

    def copy(self, source: str, target: str, columns: Sequence[str], key: Sequence[str], marks: tuple[str, str]) -> str:
        """Return the statement that copies what one attempt of each task wrote.

        Parameters
        ----------
        source, target
            Tables.
        columns
            The columns to copy, quoted.
        key
            Columns whose rows replace those of the target that have the same values; empty for none.
        marks
            The columns for the task that has written a row, and for its attempt: whole attempts, and of each task any.
        """
        task, attempt = marks
        names = ", ".join(columns)
        replaced = self.replacing(key, [name for name in columns if name not in key]) if key else ""
        return (
            f"INSERT INTO {target} ({names}) SELECT {names} FROM {source} WHERE ({task}, {attempt}) IN"
            f" (SELECT {task}, min({attempt}) FROM {source} GROUP BY {task}) {replaced}"
        ).rstrip()

    def upsert_keys(self, database: Database, table: str) -> list[UniqueKey] | None:  # noqa: ARG002
        """Return what an upsert may go by, whatever key it names; None where the database keeps to the key itself."""
        return None

    def replacing(self, key: Sequence[str], others: Sequence[str]) -> str:
        """Return the end of an INSERT whose rows replace those with the same key."""
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f"ON CONFLICT ({', '.join(key)}) DO " + (f"UPDATE SET {changes}" if changes else "NOTHING")

    def free_writers(self, database: Database) -> int | None:
        """Return how many more connections may write at a time, None if there is no limit."""
        return self.free_connections(database)

    def free_connections(self, database: Database) -> int | None:  # noqa: ARG002
        """Return how many more connections the database takes, None if there is no limit."""
        return None


def share_of(free: int | None) -> int | None:
    """Return how many of a database's free connections a job takes where the user gave no number."""
    return None if free is None else max(1, free // _SHARE)


def split_name(table: str) -> tuple[str, str]:
    """Return the schema of a table, empty if it has none, and its name."""
    schema, _, name = table.rpartition(".")
    return schema, name


def literal(text: str) -> str:
    """Return a text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"
