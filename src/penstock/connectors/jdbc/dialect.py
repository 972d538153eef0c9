"""Interface of database dialects: statistics and splits of tables, staging, and upserts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.spark.io.jdbc import JdbcConnection


_CONNECTION_SHARE = 2
_PART = r"""("([^"]|"")+"|`([^`]|``)+`|[^\W\d][\w$]*)"""
_NAME = re.compile(rf"{_PART}(\.{_PART})*")


class KeyKind(StrEnum):
    """The comparison rules of a type."""

    WHOLE = "whole numbers"
    DECIMAL = "decimal numbers"
    TEXT = "texts"
    """Identical strings are equal in every database; their order differs, and other strings may be equal as well."""


@dataclass(frozen=True, slots=True)
class Request:
    """A read of columns of a database table that meet conditions in the database's SQL.

    `table` is the name of a table, or a query in parentheses with an alias, in the user's spelling; `columns` are
    unquoted.
    """

    table: str
    columns: tuple[str, ...]
    conditions: tuple[str, ...]
    quote: Callable[[str], str]

    @property
    def is_table(self) -> bool:
        """Whether `table` is a name, and not a query or another expression of a FROM clause."""
        return _NAME.fullmatch(self.table.strip()) is not None

    @property
    def statement(self) -> str:
        """The query that reads all rows."""
        where = " AND ".join(f"({condition})" for condition in self.conditions)
        columns = ", ".join(map(self.quote, self.columns)) or "1"
        return f"SELECT {columns} FROM {self.table}" + (f" WHERE {where}" if where else "")


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """The estimate of a request by the database's statistics.

    `split_conditions` returns the conditions of at most a number of splits, and `split_by` describes them.
    """

    rows: float
    row_bytes: float
    split_conditions: Callable[[JdbcConnection, int], list[str | None]]
    split_by: str


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index, which determines the row that an upsert replaces.

    `columns` are in lower case, with an empty string for an expression. `filled` are those that get a value if an
    INSERT omits them: a default, a generated value, or 0 without strict mode. `is_whole` says whether the index has
    only whole columns, no expressions or prefixes.
    """

    columns: frozenset[str]
    filled: frozenset[str]
    is_whole: bool

    def may_replace_another(self, key: frozenset[str], written: frozenset[str]) -> bool:
        """Return whether rows with the `written` columns may conflict in this index with rows of another `key`."""
        return not (self.is_whole and self.columns >= key) and self.columns - self.filled <= written


def single_split(_database: JdbcConnection, _count: int) -> list[str | None]:
    """Return the only split of a table that cannot be divided."""
    return [None]


class JdbcDialect(ABC):
    """A kind of database."""

    name: ClassVar[str]
    prefixes: ClassVar[tuple[str, ...]]
    """The prefixes of its URLs."""
    fetch_size: ClassVar[int] = 10_000
    """Rows per fetch; by default some drivers load the whole result into memory."""
    no_snapshot_reason: ClassVar[str] = ""
    """Why several splits cannot read the same snapshot; empty if they can."""
    comparable: ClassVar[Mapping[str, KeyKind]] = {}
    """The types, in lower case, whose values the database compares like Spark."""
    transactional: ClassVar[str] = ""
    """The suffix of CREATE TABLE for tables whose writes can be rolled back."""
    prefix_query: ClassVar[str]
    """The query for the tables whose names begin with a prefix; its values are the prefix, again, and its schema."""
    isolation: ClassVar[str] = ""
    """The statement that sets the isolation level with which an overwrite sees, or waits for, all other commits."""
    lock_timeout: ClassVar[str] = ""
    """The statement that limits waits for locks to a minute; empty if the database has such a limit by default."""
    has_users: ClassVar[bool] = True
    """Whether connections belong to database users."""

    def with_absolute_path(self, url: str) -> str:
        """Return a URL that is independent of the working directory."""
        return url

    def lock(self, database: JdbcConnection, table: str) -> None:  # noqa: B027
        """Block other writers of a table until the transaction ends; called before an overwrite."""

    def connect_timeouts(self, seconds: float) -> dict[str, str]:  # noqa: ARG002
        """Return the driver properties for a timeout of connecting."""
        return {}

    def query_timeouts(self, seconds: float) -> dict[str, str]:
        """Return the driver properties for a timeout of connecting and of every query; for reading statistics."""
        return self.connect_timeouts(seconds)

    @abstractmethod
    def estimate(self, database: JdbcConnection, request: Request) -> TableEstimate:
        """Return an estimate by statistics, without reading the table."""

    def export_snapshot(self, database: JdbcConnection) -> str | None:  # noqa: ARG002
        """Open a snapshot that lasts as long as the connection; return the statement with which others import it."""
        return None

    @abstractmethod
    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Return whether a table of this name exists."""

    def tables_with_prefix(self, database: JdbcConnection, prefix: str) -> list[str]:
        """Return the tables whose names begin with a prefix, in the schema of the prefix."""
        schema, _, name = prefix.rpartition(".")
        tables = database.rows(self.prefix_query, name, name, schema)
        return [f"{schema}.{table}" if schema else str(table) for (table,) in tables]

    def copy(self, source: str, target: str, columns: Sequence[str], key: Sequence[str], marks: tuple[str, str]) -> str:
        """Return the statement that copies the rows of a single attempt of each task, or replaces rows of the same key.

        `columns` and `key` are quoted. `marks` are the columns with the task and the attempt that have written a row.
        Every attempt in the source is complete, so any attempt of a task will do.
        """
        task, attempt = marks
        names = ", ".join(columns)
        on_conflict = self.on_conflict(key, [name for name in columns if name not in key]) if key else ""
        return (
            f"INSERT INTO {target} ({names}) SELECT {names} FROM {source} WHERE ({task}, {attempt}) IN"
            f" (SELECT {task}, min({attempt}) FROM {source} GROUP BY {task}) {on_conflict}"
        ).rstrip()

    def upsert_keys(self, database: JdbcConnection, table: str) -> list[UniqueKey] | None:  # noqa: ARG002
        """Return the unique indexes that affect an upsert; None if the database considers only the named key."""
        return None

    def on_conflict(self, key: Sequence[str], others: Sequence[str]) -> str:
        """Return the clause of an INSERT that replaces rows with the same key."""
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f"ON CONFLICT ({', '.join(key)}) DO " + (f"UPDATE SET {changes}" if changes else "NOTHING")

    def free_writers(self, database: JdbcConnection) -> int | None:
        """Return the number of additional connections that may write concurrently, None if unlimited."""
        return self.free_connections(database)

    def free_connections(self, database: JdbcConnection) -> int | None:  # noqa: ARG002
        """Return the number of additional connections that the database accepts, None if unlimited."""
        return None


def default_connections(free: int | None) -> int | None:
    """Return the default number of connections of a job, a share of the free ones; None if unlimited."""
    return None if free is None else max(1, free // _CONNECTION_SHARE)


def literal(text: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
