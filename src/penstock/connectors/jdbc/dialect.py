"""The interface of database dialects: statistics and splits of tables, staging tables, and upserts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from penstock.spark.io.jdbc import JdbcConnection


_CONNECTION_DIVISOR = 2  # a job uses half of the free connections
_PART = r"""("([^"]|"")+"|`([^`]|``)+`|[^\W\d][\w$]*)"""
_NAME = re.compile(rf"{_PART}(\.{_PART})*")


class KeyType(StrEnum):
    """A group of database types whose join keys can be pushed down; all databases compare numbers as Spark does."""

    WHOLE = "whole numbers"
    DECIMAL = "decimal numbers"
    TEXT = "texts"
    """Identical strings are equal in every database. The order differs, and different strings may count as equal."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read of some columns of the rows of a database table that meet conditions in the database's SQL.

    `table` is the name of a table, or a query in parentheses with an alias, as the user spells it. `columns` are
    unquoted; `quote` quotes a name for the database.
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
    """The estimated rows of a request, and how to split them.

    `row_bytes` is the average size of a row in bytes. `split_conditions` takes a connection and the maximum number of
    splits, and returns an SQL condition for each split (None: all rows). `split_by` describes the splits.
    """

    rows: float
    row_bytes: float
    split_conditions: Callable[[JdbcConnection, int], list[str | None]]
    split_by: str


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index, which determines the row that an upsert replaces.

    `columns` are in lower case, with an empty string for an expression. `filled` are the expressions, and the columns
    that get a value if an INSERT omits them: a default, a generated value, or 0 without MySQL's strict mode. `is_whole`
    says whether the index has neither expressions nor prefixes of columns.
    """

    columns: frozenset[str]
    filled: frozenset[str]
    is_whole: bool

    def may_replace_another(self, key: frozenset[str], row_columns: frozenset[str]) -> bool:
        """Whether rows with these columns may conflict in this index with rows that have another value of `key`."""
        return not (self.is_whole and self.columns >= key) and self.columns - self.filled <= row_columns


def single_split(_database: JdbcConnection, _count: int) -> list[str | None]:
    """Return the condition of the single split of a table that cannot be divided."""
    return [None]


class JdbcDialect(ABC):
    """A kind of database."""

    name: ClassVar[str]
    url_prefixes: ClassVar[tuple[str, ...]]
    """The prefixes of the database's URLs."""
    fetch_size: ClassVar[int] = 10_000
    """Rows per fetch; by default some drivers load the whole result into memory."""
    no_snapshot_reason: ClassVar[str] = ""
    """The reason why several splits cannot read the same snapshot; empty if they can."""
    comparable_types: ClassVar[Mapping[str, KeyType]] = {}
    """The key types of those database types whose keys can be pushed down, by type names in lower case."""
    transactional_suffix: ClassVar[str] = ""
    """The suffix of CREATE TABLE for tables whose writes can be rolled back."""
    prefix_query: ClassVar[str]
    """The query for the tables whose names begin with a prefix; its parameters: the prefix, twice, and the schema."""
    isolation_statement: ClassVar[str] = ""
    """The statement that sets an isolation level with which an overwrite sees, or waits for, all other commits."""
    lock_timeout_statement: ClassVar[str] = ""
    """The statement that limits waits for locks to a minute; empty if the database has such a limit by default."""
    has_users: ClassVar[bool] = True
    """Whether the database has users with separate rights, unlike a database in a file."""

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
    def estimate(self, database: JdbcConnection, request: ReadRequest) -> TableEstimate:
        """Return an estimate by statistics of the database or by samples, without reading the whole table."""

    def export_snapshot(self, database: JdbcConnection) -> str | None:  # noqa: ARG002
        """Open a snapshot that lasts as long as the connection; return the statement that imports it, if any."""
        return None

    @abstractmethod
    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Whether a table of this name exists."""

    def tables_with_prefix(self, database: JdbcConnection, prefix: str) -> list[str]:
        """Return the tables whose names begin with a prefix, in the schema of the prefix."""
        schema, _, name = prefix.rpartition(".")
        tables = database.rows(self.prefix_query, name, name, schema)
        return [f"{schema}.{table}" if schema else str(table) for (table,) in tables]

    def copy_statement(
        self, staging: str, target: str, columns: Sequence[str], key: Sequence[str], task_columns: tuple[str, str]
    ) -> str:
        """Return the statement that copies the rows of a single attempt of each task; with a `key`, as an upsert.

        `columns` and `key` are quoted. `task_columns` are the columns with the task and the attempt that wrote a row.
        Every attempt in the staging table is complete, so the rows of any attempt of a task can be copied.
        """
        task, attempt = task_columns
        names = ", ".join(columns)
        on_conflict = self.on_conflict(key, [name for name in columns if name not in key]) if key else ""
        return (
            f"INSERT INTO {target} ({names}) SELECT {names} FROM {staging} WHERE ({task}, {attempt}) IN"
            f" (SELECT {task}, min({attempt}) FROM {staging} GROUP BY {task}) {on_conflict}"
        ).rstrip()

    def upsert_keys(self, database: JdbcConnection, table: str) -> list[UniqueKey] | None:  # noqa: ARG002
        """Return the unique indexes that affect an upsert; None if only the index of its key does."""
        return None

    def on_conflict(self, key: Sequence[str], other_columns: Sequence[str]) -> str:
        """Return the clause of an INSERT that replaces rows with the same key."""
        changes = ", ".join(f"{name} = excluded.{name}" for name in other_columns)
        return f"ON CONFLICT ({', '.join(key)}) DO " + (f"UPDATE SET {changes}" if changes else "NOTHING")

    def free_writers(self, database: JdbcConnection) -> int | None:
        """Return how many more connections may write concurrently; None if unlimited."""
        return self.free_connections(database)

    def free_connections(self, database: JdbcConnection) -> int | None:  # noqa: ARG002
        """Return how many more connections the database accepts; None if unlimited."""
        return None


def default_connections(free: int | None) -> int | None:
    """Return the default number of connections of a job: half of the free connections; None if unlimited."""
    return None if free is None else max(1, free // _CONNECTION_DIVISOR)


def literal(text: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
