"""What a job has ready for a table of a database: staged rows, which one transaction copies."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit import Prepared
from penstock.connectors.extras import address_of, given_for, with_secrets
from penstock.connectors.jdbc.ledger import (
    add_token,
    has_token,
    keeps_tokens_apart,
    make_table,
    point,
    remove_token,
    unpoint,
)
from penstock.connectors.jdbc.source import dialect_of, is_masked, located, masked
from penstock.errors import SinkError
from penstock.spark.jdbc import JdbcTarget
from penstock.spark.jvm import root_cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit import Access
    from penstock.connectors.jdbc.dialect import JdbcDialect
    from penstock.spark.jdbc import JdbcConnection

_PART = r"""("([^"\\\0]|"")+"|`([^`\\\0]|``)+`|\[[^\]\\\0]+\]|[\w$]+)"""
_IDENTIFIER = re.compile(_PART)
_TABLE = re.compile(rf"{_PART}(\s*\.\s*{_PART}){{0,2}}")
_STAGED = re.compile(r"penstock_[a-z0-9]{0,20}_[0-9a-f]{12}(_[0-9a-f]{12})?")
_RUN = re.compile(r"[0-9a-f]{12}")
_OF_TOKEN = re.compile(r"penstock_[a-z0-9]{0,20}_[0-9a-f]{12}_")
log = logging.getLogger("penstock.sinks")

TASK, ATTEMPT = "penstock_task", "penstock_attempt"


@dataclass
class _Transaction:
    """Work that only wants its COMMIT.

    Parameters
    ----------
    database
        The connection.
    copied
        The records whose rows it has copied.
    """

    database: JdbcConnection
    copied: list[PreparedJdbc] = field(default_factory=list)

    def close(self) -> None:
        self.database.close()


@dataclass(frozen=True)
class PreparedJdbc(Prepared):
    """Rows of a staging table that are not in their table yet.

    Parameters
    ----------
    database
        The URL, without passwords.
    table
        The table.
    mode
        ``append``, ``overwrite`` or ``upsert``.
    columns, key
        Columns, and those of the key of an upsert, quoted.
    staging
        Where the rows are; empty text where the token is in the table already.
    token
        The name of what is written, if it has one.
    receipt
        What the ledger tells the commit by where there is no token; None where the user may not write to the ledger.
    of_token
        How the names of staging tables of all runs of the token begin.
    properties
        Options of Spark's writer, but for secrets.
    """

    kind: ClassVar[str] = "jdbc"
    is_reversible: ClassVar[bool] = False

    database: str
    table: str
    mode: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    staging: str
    token: str | None
    receipt: str | None
    of_token: str | None
    properties: tuple[tuple[str, str], ...]

    @property
    def target(self) -> str:
        """The table and its database."""
        return f"{self.table} of {self.database}"

    @property
    def address(self) -> str:
        """The database, and the user."""
        return address_of_user(self.database, dict(self.properties))

    @property
    def together(self) -> str:
        """The database, and the user: its sinks share a transaction."""
        return self.address

    @property
    def _entry(self) -> str | None:
        return self.token or self.receipt

    def check_names(self) -> None:
        """Refuse what is not a name: names of tables and columns become part of statements.

        Those of staging tables are in the schema of the table, and of letters that mean the same with and without
        quotes.
        """
        schema, dot, _ = self.table.rpartition(".")
        if _TABLE.fullmatch(self.table) is None or dialect_of(self.database) is None:
            raise ValueError(f"{self.target!r} is not a table of a database")
        for name, pattern in ((self.staging, _STAGED), (self.of_token or "", _OF_TOKEN)):
            if name and (not name.startswith(schema + dot) or not pattern.fullmatch(name.removeprefix(schema + dot))):
                raise ValueError(f"{name!r} is not the name of a staging table of {self.table!r}")
        for column in (*self.columns, *self.key):
            if _IDENTIFIER.fullmatch(column) is None:
                raise ValueError(f"{column!r} is not the name of a column")
        if self.mode not in {"append", "overwrite", "upsert"}:
            raise ValueError(f"mode {self.mode!r} is not known")

    def ready(self, access: Access) -> None:
        """Copy the rows in a transaction that only wants its COMMIT: what the database refuses, it refuses here.

        Sinks of one database share it, and so commit together; they would wait for each other's locks for ever. If
        another run has written this record's token, all that was ready is undone, as that run may wait for it. The
        records before this one are then made ready again.
        """
        if not self.staging:
            return
        transaction = access.open_transactions.get(self.together) or self._open(access)
        try:
            self._copy(transaction.database)
            transaction.copied.append(self)
        except Exception:
            undone = [one for begun in access.open_transactions.values() for one in begun.copied]
            access.close()
            if self._entry is None or not self.is_committed(access):
                raise
            log.warning("another run has written %s to %s", self.token, self.table)
            access.committed.add(self.staging)
            for one in undone:
                one.ready(access)

    def is_written(self, access: Access) -> bool:
        """Whether the token was in the table before, or `ready` found it there, or its transaction has committed."""
        return not self.staging or self.staging in access.committed

    def commit(self, access: Access) -> None:
        """Commit the transaction that is `ready`, or do all of it."""
        if self.is_written(access):
            return
        begun = access.open_transactions.pop(self.together, None)
        if begun is not None:
            with begun.database as database:
                database.commit()
            access.committed |= {one.staging for one in begun.copied}
            return
        if self._entry is not None and self.is_committed(access):
            return
        with self._connect(access) as database:
            self.make(database, self._dialect)
            self._begin(database)
            self._copy(database)
            database.commit()

    def is_committed(self, access: Access) -> bool:
        """Whether the ledger has the job; a transaction of a process that has died meanwhile is waited for.

        Raises
        ------
        SinkError
            If that cannot be told, as the user may not write to the ledger, or nothing in it can be waited for.
        """
        if not self.staging:
            return True
        if self._entry is None:
            raise SinkError(
                f"whether rows were committed to {self.target} is unknown",
                cause="its user may not write to the table penstock_commits",
                hint="look at the table itself",
            )
        with self._connect(access) as database:
            if has_token(self._dialect, database, self.table, self._entry):
                return True
            if not keeps_tokens_apart(database):
                raise SinkError(
                    f"whether rows were committed to {self.target} is unknown",
                    cause="the table penstock_commits has no unique key, so nobody waits for a commit under way",
                    hint="CREATE UNIQUE INDEX penstock_commits_key ON penstock_commits (target, token)",
                )
            database.begin()
            try:
                add_token(database, self.table, self._entry)  # waits until one that has inserted it ends
            except Exception as error:  # noqa: BLE001 - raised below, unless the row is there
                refused = error
            else:
                return False
        with self._connect(access) as database:
            if has_token(self._dialect, database, self.table, self._entry):
                return True
        raise refused  # a commit may still come, so neither answer would be true

    def has_begun(self, access: Access) -> bool:
        """Whether this job has committed; if the token was in the table before, nothing of this job is."""
        return bool(self.staging) and self.is_committed(access)

    def undo(self, access: Access) -> None:
        """Drop the staged rows."""
        self._drop(access)

    def finish(self, access: Access) -> None:
        """Drop the staged rows, those of other runs of the token too, and the receipt."""
        self._drop(access, also_of_token=True)
        if self.receipt is not None:
            with suppress(Exception), self._connect(access) as database:
                remove_token(database, self.table, self.receipt)

    def point(self, access: Access, journal: str) -> None:
        """Put a row into a table of journals.

        Raises
        ------
        SinkError
            If a recovery could not tell later whether the rows were committed.
        """
        if self._entry is None:
            raise SinkError.no_ledger(self.table, self.database, "its job has other sinks, with which it commits")
        with self._connect(access) as database:
            point(self._dialect, database, self.table, journal)

    def unpoint(self, access: Access, journal: str) -> None:
        """Remove the row."""
        if self._entry is None:
            return
        with self._connect(access) as database:
            unpoint(self._dialect, database, journal)

    def make(self, database: JdbcConnection, dialect: JdbcDialect) -> None:
        """Make the table if it is not there."""
        columns = ", ".join(self.columns)
        make_table(dialect, database, self.table, f"AS SELECT {columns} FROM {self.staging} WHERE 1 = 0")

    def _open(self, access: Access) -> _Transaction:
        """Begin the transaction that the sinks of this database share."""
        database = self._connect(access)
        others = [one for one in access.open_transactions if one.split(", ")[0] == self.database]
        transaction = access.open_transactions[self.together] = _Transaction(database)
        if self._entry is not None:  # makes the ledger, while no transaction is open
            has_token(self._dialect, database, self.table, self._entry)
        self._begin(database)
        if others and self._dialect.patience:  # another user's transaction, which this one may wait for
            database.run(self._dialect.patience)
        return transaction

    def _begin(self, database: JdbcConnection) -> None:
        database.begin()
        if self._dialect.isolation:
            database.run(self._dialect.isolation)

    def _copy(self, database: JdbcConnection) -> None:
        if self._entry is not None:
            add_token(database, self.table, self._entry)
        if self.mode == "overwrite":
            self._dialect.lock(database, self.table)
            database.run(f"DELETE FROM {self.table}")
        database.run(self._dialect.copy(self.staging, self.table, self.columns, self.key, (TASK, ATTEMPT)))

    def _drop(self, access: Access, *, also_of_token: bool = False) -> None:
        try:
            with self._connect(access) as database:
                wanted = self.of_token if also_of_token else None
                others = [] if wanted is None else self._dialect.tables_like(database, wanted)
                # Whoever may make tables in the schema may give them names that are statements.
                runs = {name for name in others if wanted and _RUN.fullmatch(name.removeprefix(wanted))}
                for table in sorted({self.staging, *runs} - {""}):
                    database.run(f"DROP TABLE IF EXISTS {table}")
        except Exception as error:  # noqa: BLE001 - what has been committed stays
            if self.staging:
                warn_of_staging(self.staging, self.database, error)

    @property
    def _dialect(self) -> JdbcDialect:
        found = dialect_of(self.database)
        assert found is not None
        return found

    def _connect(self, access: Access) -> JdbcConnection:
        given = given_for(access, self.address, self.database)
        if located(self.database) != self.database or (is_masked(self.database) and "url" not in given):
            raise SinkError(
                f"{self.database} cannot be reached by what a journal keeps",
                cause="a relative path, or a part that may be a secret",
                hint="give the whole `url`: run the job again, or see `penstock recover --help`",
            )
        options = {"url": self.database, "dbtable": self.table, **with_secrets(self.properties, given)}
        return JdbcTarget(access.bridge, options).connect()


def warn_of_staging(table: str, database: str, error: Exception) -> None:
    """Tell of staged rows that could not be removed: nothing else removes them."""
    log.warning(
        "table %s of %s holds staged rows of a job that has ended, and could not be dropped: %s; drop it",
        table,
        database,
        masked(root_cause(error)),
    )


def address_of_user(database: str, properties: Mapping[str, str]) -> str:
    """Return by which the secrets of a user of a database are found."""
    dialect = dialect_of(database)
    user = next((value for key, value in properties.items() if key.lower() == "user"), None)
    return address_of(database, user if dialect is not None and dialect.has_users else None)
