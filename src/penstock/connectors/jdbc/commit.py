"""Commit record of a database table: staged rows that a transaction copies into the table."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit import Prepared
from penstock.connectors.extras import client_key, secrets_for, with_secrets
from penstock.connectors.jdbc.ledger import (
    add_token,
    create_table,
    has_token,
    has_unique_key,
    register_journal,
    remove_token,
    unregister_journal,
)
from penstock.connectors.jdbc.source import dialect_of, is_masked, masked, with_absolute_path
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
    """An open transaction that has copied rows, and has only its COMMIT left.

    Parameters
    ----------
    database
        The connection.
    copied
        The records whose rows the transaction has copied.
    """

    database: JdbcConnection
    copied: list[PreparedJdbc] = field(default_factory=list)

    def close(self) -> None:
        self.database.close()


@dataclass(frozen=True)
class PreparedJdbc(Prepared):
    """Commit record of rows in a staging table.

    Parameters
    ----------
    database
        The URL, without passwords.
    table
        The target table.
    mode
        ``append``, ``overwrite`` or ``upsert``.
    columns, key
        The columns, and the key columns of an upsert, quoted.
    staging
        The staging table; empty if the token is in the target already.
    token
        The idempotency token of the rows, or None.
    receipt
        The identifier of the commit in the ledger if there is no token; None if the user may not write to the ledger.
    of_token
        The common prefix of the staging tables of all runs with this token, None without a token.
    properties
        Options of Spark's writer without secrets.
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
        return user_key(self.database, dict(self.properties))

    @property
    def together(self) -> str:
        """The key of the transaction that sinks of the same database and user share."""
        return self.address

    @property
    def _entry(self) -> str | None:
        return self.token or self.receipt

    def check_names(self) -> None:
        """Reject invalid names of tables and columns, as they become part of SQL statements.

        Staging tables must be in the schema of the target, and have names that are the same with and without quotes.
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
            raise ValueError(f"mode {self.mode!r} is not valid")

    def ready(self, access: Access) -> None:
        """Copy the rows in a transaction without its COMMIT, so that errors of the database occur before the commit.

        Sinks of the same database share the transaction, as they would otherwise deadlock on each other's locks. If
        another run has written this record's token, all open transactions are rolled back, as that run may wait for
        them. The earlier records are then copied again.
        """
        if not self.staging:
            return
        transaction = access.open_transactions.get(self.together) or self._open(access)
        try:
            self._copy(transaction.database)
            transaction.copied.append(self)
        except Exception:
            rolled_back = [record for opened in access.open_transactions.values() for record in opened.copied]
            access.close()
            if self._entry is None or not self.is_committed(access):
                raise
            log.warning("another run has written %s to %s", self.token, self.table)
            access.committed.add(self.staging)
            for record in rolled_back:
                record.ready(access)

    def is_written(self, access: Access) -> bool:
        """Return whether the target had the token before, or its transaction has committed."""
        return not self.staging or self.staging in access.committed

    def commit(self, access: Access) -> None:
        """Commit the transaction of `ready`; if there is none, copy the rows and commit."""
        if self.is_written(access):
            return
        transaction = access.open_transactions.pop(self.together, None)
        if transaction is not None:
            with transaction.database as database:
                database.commit()
            access.committed |= {record.staging for record in transaction.copied}
            return
        if self._entry is not None and self.is_committed(access):
            return
        with self._connect(access) as database:
            self.create_table(database, self._dialect)
            self._begin(database)
            self._copy(database)
            database.commit()

    def is_committed(self, access: Access) -> bool:
        """Return whether the ledger has the job's entry, after any open transaction of a dead process has ended.

        Raises
        ------
        SinkError
            If that cannot be determined, because the user may not write to the ledger, or the ledger has no unique key.
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
            if not has_unique_key(database):
                raise SinkError(
                    f"whether rows were committed to {self.target} is unknown",
                    cause="the table penstock_commits has no unique key, so nobody waits for a commit under way",
                    hint="CREATE UNIQUE INDEX penstock_commits_key ON penstock_commits (target, token)",
                )
            database.begin()
            try:
                add_token(database, self.table, self._entry)  # waits for a transaction that has inserted the entry
            except Exception as error:  # noqa: BLE001 - raised below unless the entry exists
                insert_error = error
            else:
                return False
        with self._connect(access) as database:
            if has_token(self._dialect, database, self.table, self._entry):
                return True
        raise insert_error  # a commit may still happen, so the outcome is unknown

    def has_begun(self, access: Access) -> bool:
        """Return whether this job itself has committed: not if the token was in the target before."""
        return bool(self.staging) and self.is_committed(access)

    def undo(self, access: Access) -> None:
        """Drop the staging table."""
        self._drop(access)

    def finish(self, access: Access) -> None:
        """Drop the staging tables of all runs with the token, and remove the receipt."""
        self._drop(access, also_of_token=True)
        if self.receipt is not None:
            with suppress(Exception), self._connect(access) as database:
                remove_token(database, self.table, self.receipt)

    def point(self, access: Access, journal: str) -> None:
        """Register the journal in the database.

        Raises
        ------
        SinkError
            If there is no ledger entry from which a recovery could determine whether the rows were committed.
        """
        if self._entry is None:
            raise SinkError.no_ledger(self.table, self.database, "its job has other sinks, with which it commits")
        with self._connect(access) as database:
            register_journal(self._dialect, database, self.table, journal)

    def unpoint(self, access: Access, journal: str) -> None:
        """Remove the journal from the database."""
        if self._entry is None:
            return
        with self._connect(access) as database:
            unregister_journal(self._dialect, database, journal)

    def create_table(self, database: JdbcConnection, dialect: JdbcDialect) -> None:
        """Create the target table if it does not exist."""
        columns = ", ".join(self.columns)
        create_table(dialect, database, self.table, f"AS SELECT {columns} FROM {self.staging} WHERE 1 = 0")

    def _open(self, access: Access) -> _Transaction:
        """Begin the transaction that the sinks of this database share."""
        database = self._connect(access)
        others = [key for key in access.open_transactions if key.split(", ")[0] == self.database]
        transaction = access.open_transactions[self.together] = _Transaction(database)
        if self._entry is not None:  # creates the ledger before the transaction begins
            has_token(self._dialect, database, self.table, self._entry)
        self._begin(database)
        if others and self._dialect.lock_timeout:  # this transaction may wait for that of another user
            database.run(self._dialect.lock_timeout)
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
                prefix = self.of_token if also_of_token else None
                others = [] if prefix is None else self._dialect.tables_with_prefix(database, prefix)
                # Other users of the schema may have created tables whose names contain SQL.
                runs = {name for name in others if prefix and _RUN.fullmatch(name.removeprefix(prefix))}
                for table in sorted({self.staging, *runs} - {""}):
                    database.run(f"DROP TABLE IF EXISTS {table}")
        except Exception as error:  # noqa: BLE001 - the commit itself has succeeded
            if self.staging:
                warn_of_staging(self.staging, self.database, error)

    @property
    def _dialect(self) -> JdbcDialect:
        dialect = dialect_of(self.database)
        assert dialect is not None
        return dialect

    def _connect(self, access: Access) -> JdbcConnection:
        secrets = secrets_for(access, self.address, self.database)
        if with_absolute_path(self.database) != self.database or (is_masked(self.database) and "url" not in secrets):
            raise SinkError(
                f"{self.database} cannot be reached from the URL in the journal",
                cause="it has a relative path, or a part that may be a secret and is not stored",
                hint="give the whole `url`: run the job again, or see `penstock recover --help`",
            )
        options = {"url": self.database, "dbtable": self.table, **with_secrets(self.properties, secrets)}
        return JdbcTarget(access.bridge, options).connect()


def warn_of_staging(table: str, database: str, error: Exception) -> None:
    """Log a warning that a staging table could not be dropped, as nothing else drops it."""
    log.warning(
        "table %s of %s holds staged rows of a job that has ended, and could not be dropped: %s; drop it",
        table,
        database,
        masked(root_cause(error)),
    )


def user_key(database: str, properties: Mapping[str, str]) -> str:
    """Return the key of the secrets of a database's user."""
    dialect = dialect_of(database)
    user = next((value for key, value in properties.items() if key.lower() == "user"), None)
    return client_key(database, user if dialect is not None and dialect.has_users else None)
