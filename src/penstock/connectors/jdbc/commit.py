"""Commit record of a database table: a transaction copies staged rows, and adds a token or receipt to a ledger."""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit import Outcome, Prepared, recover
from penstock.commit.journal import warehouse_of
from penstock.commit.owner import tag_is_alive
from penstock.commit.trust import check_path_from_database, warn_once
from penstock.connectors.core.extras import client_key, secrets_for, with_secrets
from penstock.connectors.core.timeouts import timeout
from penstock.connectors.jdbc.source import URL_MASK, dialect_of, masked, with_absolute_path
from penstock.errors import CommitError, SinkError, UntrustedJournalError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.io.jdbc import JdbcTarget

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.connectors.jdbc.dialect import JdbcDialect
    from penstock.spark.io.jdbc import JdbcConnection

_PART = r"""("([^"\\\0]|"")+"|`([^`\\\0]|``)+`|\[[^\]\\\0]+\]|[\w$]+)"""  # a part of a name, quoted or plain
_IDENTIFIER = re.compile(_PART)
_TABLE = re.compile(rf"{_PART}(\s*\.\s*{_PART}){{0,2}}")
_STAGING_TABLE = re.compile(r"penstock_[a-z0-9]{0,20}_[0-9a-f]{12}(_[0-9a-f]{12})?")
_RUN_SUFFIX = re.compile(r"[0-9a-f]{12}")
_TOKEN_PREFIX = re.compile(r"penstock_[a-z0-9]{0,20}_[0-9a-f]{12}_")
log = logging.getLogger("penstock.sinks")

TASK, ATTEMPT = "penstock_task", "penstock_attempt"  # staging columns: the task and attempt that wrote a row
_LEDGER, _JOURNALS = "penstock_commits", "penstock_journals"
"""Tables in the user's database: the tokens and receipts of commits, and pointers to journals."""
_MAX_LENGTH = 200  # characters of a table or token in the ledger
_PORTABLE_NAME = re.compile(rf"(?!sha256:)(?=.{{1,{_MAX_LENGTH}}}$)[a-z0-9._:/-]+( [a-z0-9._:/-]+)*")
"""Names that no database equates with another name, even if it ignores case, accents, or blanks at the end."""


def ledger_entry(table: str, token: str) -> str:
    """Return a token as the ledger stores it: hashed if a database could equate the token or table with another."""
    if _PORTABLE_NAME.fullmatch(table) and _PORTABLE_NAME.fullmatch(token):
        return token
    both = f"{table}\0{token}".encode()
    return f"sha256:{hashlib.sha256(both).hexdigest()}"


def create_ledger(dialect: JdbcDialect, connection: JdbcConnection) -> None:
    """Create the ledger if it does not exist."""
    columns = f"target varchar({_MAX_LENGTH}) NOT NULL, token varchar({_MAX_LENGTH}) NOT NULL"
    create_table(dialect, connection, _LEDGER, f"({columns}, PRIMARY KEY (target, token))")


def check_ledger(dialect: JdbcDialect, connection: JdbcConnection) -> None:
    """Create the ledger if it does not exist, and write to it in a transaction that is never committed.

    Raise an error if the user may not create the ledger, or not write to it.
    """
    create_ledger(dialect, connection)
    if not dialect.has_users:  # the rights are those of the file, and the write could wait for other writers
        return
    entry = f"try {uuid.uuid4().hex}"
    connection.begin()  # closing the connection rolls the transaction back
    add_token(connection, entry, entry)
    remove_token(connection, entry, entry)


def has_unique_key(connection: JdbcConnection) -> bool:
    """Whether the ledger rejects duplicate tokens; True if the database does not report its unique keys.

    A ledger that Penstock did not create may lack a unique key.
    """
    try:
        return any(key <= {"target", "token"} for key in connection.unique_keys(_LEDGER))
    except Exception:
        log.warning("the unique keys of %s could not be read", _LEDGER, exc_info=True)
        return True


def has_token(dialect: JdbcDialect, connection: JdbcConnection, table: str, token: str) -> bool:
    """Whether the ledger has a token of a table; create the ledger if it does not exist."""
    create_ledger(dialect, connection)
    entry = ledger_entry(table, token)
    # Older releases stored all tokens unhashed. Databases may ignore case, so Python compares the strings again.
    query = f"SELECT target, token FROM {_LEDGER} WHERE target = ? AND token IN (?, ?)"
    return bool(
        {(table[:_MAX_LENGTH], entry), (table, token)} & set(connection.rows(query, table[:_MAX_LENGTH], entry, token))
    )


def add_token(connection: JdbcConnection, table: str, token: str) -> None:
    """Add a token to the ledger; wait if an open transaction has added it, and fail if that transaction commits."""
    connection.run(
        f"INSERT INTO {_LEDGER} (target, token) VALUES (?, ?)", table[:_MAX_LENGTH], ledger_entry(table, token)
    )


def remove_token(connection: JdbcConnection, table: str, token: str) -> None:
    """Remove a token from the ledger."""
    statement = f"DELETE FROM {_LEDGER} WHERE target = ? AND token = ?"
    connection.run(statement, table[:_MAX_LENGTH], ledger_entry(table, token))


def create_table(dialect: JdbcDialect, connection: JdbcConnection, table: str, definition: str) -> None:
    """Create a table if it does not exist; several jobs may call this concurrently.

    `definition` is the part of CREATE TABLE after the name.
    """
    if dialect.has_table(connection, table):
        return
    try:
        connection.run(f"CREATE TABLE IF NOT EXISTS {table} {definition}")
    except Exception:  # PostgreSQL may fail despite IF NOT EXISTS if another job creates the table
        if not dialect.has_table(connection, table):
            raise


def unregister_journal(dialect: JdbcDialect, connection: JdbcConnection, journal: str) -> None:
    """Remove the pointer to a journal (its path); the pointer, and its table, may be missing."""
    if dialect.has_table(connection, _JOURNALS):
        connection.run(f"DELETE FROM {_JOURNALS} WHERE journal = ?", journal)


def recover_table(access: Access, url: str, secrets_key: str, table: str) -> None:
    """Recover interrupted commits to a table; `url` is masked, the complete URL is in the secrets of `secrets_key`."""
    dialect = dialect_of(url)
    assert dialect is not None
    options = {"dbtable": table, **secrets_for(access, secrets_key)}
    target = JdbcTarget(access.bridge, options)
    try:
        with JdbcTarget(access.bridge, {**dialect.query_timeouts(timeout()), **options}).connect() as connection:
            if not dialect.has_table(connection, _JOURNALS):
                return
            query = f"SELECT DISTINCT journal FROM {_JOURNALS} WHERE target = ?"
            journals = connection.rows(query, table[:_MAX_LENGTH])
    except CommitError:
        raise
    except Exception:  # `JdbcSink.open` reports the error
        log.debug("the journals of %s could not be read", table, exc_info=True)
        return
    for (journal,) in journals:
        try:
            check_path_from_database(str(journal), warehouse_of(access.bridge))
            is_gone = recover(access, str(journal)).outcome is Outcome.GONE
        except UntrustedJournalError as error:
            warn_once(error)
            continue
        if is_gone and tag_is_alive(str(journal)) is False:  # the process died before it wrote the journal
            with target.connect() as connection:
                unregister_journal(dialect, connection, str(journal))


@dataclass
class _Transaction:
    """An open transaction that has copied the rows of the records `copied`, so that only its COMMIT is left to do."""

    connection: JdbcConnection
    copied: list[PreparedJdbc] = field(default_factory=list)

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class PreparedJdbc(Prepared):
    """Commit record of rows in a staging table.

    `database` is the URL without passwords. `columns`, and the `key` of an upsert, are quoted. `staging` is empty if
    the target has the token already. `receipt` is the ledger's entry of a commit without a token; None with a token, or
    if the user may not write to the ledger. `token_prefix` (`of_token` in journals) is the common prefix of the staging
    tables of all runs with this token; None without it. `properties` are options of Spark's writer without secrets.
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
    token_prefix: str | None = field(metadata={"key": "of_token"})
    properties: tuple[tuple[str, str], ...]

    @property
    def target(self) -> str:
        """The table and its database."""
        return f"{self.table} of {self.database}"

    @property
    def address(self) -> str:
        """The key of the target in `Access.secrets`: the database and the user."""
        return secrets_key_of(self.database, dict(self.properties))

    @property
    def transaction_key(self) -> str:
        """The key of the transaction that sinks of the same database and user share."""
        return self.address

    @property
    def _ledger_token(self) -> str | None:
        """The token or receipt in the ledger; None if the user may not write to the ledger."""
        return self.token or self.receipt

    def check_names(self) -> None:
        """Reject invalid names of tables and columns, as they become part of SQL statements.

        Staging tables must be in the schema of the target, and have names that are the same with and without quotes.
        """
        schema, dot, _ = self.table.rpartition(".")
        if _TABLE.fullmatch(self.table) is None or dialect_of(self.database) is None:
            raise ValueError(f"{self.target!r} is not a table of a database")
        for name, pattern in ((self.staging, _STAGING_TABLE), (self.token_prefix or "", _TOKEN_PREFIX)):
            if name and (not name.startswith(schema + dot) or not pattern.fullmatch(name.removeprefix(schema + dot))):
                raise ValueError(f"{name!r} is not the name of a staging table of {self.table!r}")
        for column in (*self.columns, *self.key):
            if _IDENTIFIER.fullmatch(column) is None:
                raise ValueError(f"{column!r} is not the name of a column")
        if self.mode not in {"append", "overwrite", "upsert"}:
            raise ValueError(f"mode {self.mode!r} is not valid")

    def make_ready(self, access: Access) -> None:
        """Copy the rows in an open transaction, so that errors of the database occur before the commit.

        Sinks of the same database and user share the transaction, because their locks could otherwise cause a deadlock.
        After an error, all open transactions are rolled back, because another run that has written the token of this
        record may wait for their locks. If that run has committed, the rows of the earlier records are copied again.
        """
        if not self.staging:
            return
        transaction = access.open_transactions.get(self.transaction_key) or self._open(access)
        try:
            self._copy(transaction.connection)
            transaction.copied.append(self)
        except Exception:
            rolled_back = [record for opened in access.open_transactions.values() for record in opened.copied]
            access.close()  # rolls back all open transactions
            if self._ledger_token is None or not self.is_committed(access):
                raise
            log.warning("another run has written token %s to %s", self.token, self.table)
            access.committed_staging_tables.add(self.staging)
            for record in rolled_back:
                record.make_ready(access)

    def is_already_committed(self, access: Access) -> bool:
        """Whether this process has committed the rows, or has noticed that another run has; without a query."""
        return not self.staging or self.staging in access.committed_staging_tables

    def commit(self, access: Access) -> None:
        """Commit the transaction of `make_ready`; if there is no such transaction, copy the rows and commit."""
        if self.is_already_committed(access):
            return
        transaction = access.open_transactions.pop(self.transaction_key, None)
        if transaction is not None:
            with transaction.connection as connection:
                connection.commit()
            access.committed_staging_tables |= {record.staging for record in transaction.copied}
            return
        if self._ledger_token is not None and self.is_committed(access):
            return
        with self._connect(access) as connection:
            self.create_table(connection, self._dialect)
            self._begin(connection)
            self._copy(connection)
            connection.commit()

    def is_committed(self, access: Access) -> bool:
        """Whether the ledger has the token or receipt; waits for any open transaction that has added it.

        Raise `SinkError` if that is unknown, because the user may not write to the ledger, or it has no unique key.
        """
        if not self.staging:
            return True
        if self._ledger_token is None:
            raise SinkError(
                f"whether rows were committed to {self.target} is unknown",
                cause="its user may not write to the table penstock_commits",
                hint="check whether the table has the rows",
            )
        with self._connect(access) as connection:
            if has_token(self._dialect, connection, self.table, self._ledger_token):
                return True
            if not has_unique_key(connection):
                raise SinkError(
                    f"whether rows were committed to {self.target} is unknown",
                    cause="the table penstock_commits has no unique key, so a running commit cannot be awaited",
                    hint="CREATE UNIQUE INDEX penstock_commits_key ON penstock_commits (target, token)",
                )
            connection.begin()
            try:
                add_token(connection, self.table, self._ledger_token)  # waits for a transaction that has added it
            except Exception as error:  # noqa: BLE001 - raised below unless the ledger has the token
                insert_error = error
            else:
                return False  # closing the connection rolls the insert back
        with self._connect(access) as connection:
            if has_token(self._dialect, connection, self.table, self._ledger_token):
                return True
        raise insert_error  # the transaction that has added the token may still commit, so the outcome is unknown

    def has_begun(self, access: Access) -> bool:
        """Whether this job, or another run meanwhile, has committed; False if `prepare` detected the token already."""
        return bool(self.staging) and self.is_committed(access)

    def undo(self, access: Access) -> None:
        """Drop the staging table."""
        self._drop(access)

    def finish(self, access: Access) -> None:
        """Drop the staging tables of all runs with the token, and remove the receipt."""
        self._drop(access, all_runs=True)
        if self.receipt is not None:
            with suppress(Exception), self._connect(access) as connection:
                remove_token(connection, self.table, self.receipt)

    def write_pointer(self, access: Access, journal: str) -> None:
        """Register the journal in the database.

        Raise `SinkError` if the commit has no token or receipt: recovery could not determine whether it succeeded.
        """
        if self._ledger_token is None:
            raise SinkError.no_ledger(self.table, self.database, "the sinks of its job commit together")
        with self._connect(access) as connection:
            columns = f"(target varchar({_MAX_LENGTH}) NOT NULL, journal varchar(2000) NOT NULL)"
            create_table(self._dialect, connection, _JOURNALS, columns)
            connection.run(f"INSERT INTO {_JOURNALS} VALUES (?, ?)", self.table[:_MAX_LENGTH], journal)

    def remove_pointer(self, access: Access, journal: str) -> None:
        """Remove the journal from the database."""
        if self._ledger_token is None:
            return
        with self._connect(access) as connection:
            unregister_journal(self._dialect, connection, journal)

    def create_table(self, connection: JdbcConnection, dialect: JdbcDialect) -> None:
        """Create the target table if it does not exist."""
        columns = ", ".join(self.columns)
        create_table(dialect, connection, self.table, f"AS SELECT {columns} FROM {self.staging} WHERE 1 = 0")

    def _open(self, access: Access) -> _Transaction:
        """Begin the transaction that the sinks of this database share."""
        connection = self._connect(access)
        other_users = [key for key in access.open_transactions if key.split(", ")[0] == self.database]
        transaction = access.open_transactions[self.transaction_key] = _Transaction(connection)
        if self._ledger_token is not None:  # called because it creates the ledger, before the transaction begins
            has_token(self._dialect, connection, self.table, self._ledger_token)
        self._begin(connection)
        if other_users and self._dialect.lock_timeout_statement:  # their transactions may hold locks until the end
            connection.run(self._dialect.lock_timeout_statement)
        return transaction

    def _begin(self, connection: JdbcConnection) -> None:
        connection.begin()
        if self._dialect.isolation_statement:
            connection.run(self._dialect.isolation_statement)

    def _copy(self, connection: JdbcConnection) -> None:
        if self._ledger_token is not None:
            add_token(connection, self.table, self._ledger_token)
        if self.mode == "overwrite":
            self._dialect.lock(connection, self.table)
            connection.run(f"DELETE FROM {self.table}")
        connection.run(self._dialect.copy_statement(self.staging, self.table, self.columns, self.key, (TASK, ATTEMPT)))

    def _drop(self, access: Access, *, all_runs: bool = False) -> None:
        try:
            with self._connect(access) as connection:
                prefix = self.token_prefix if all_runs else None
                names = [] if prefix is None else self._dialect.tables_with_prefix(connection, prefix)
                # Other users of the schema may have created tables whose names contain SQL.
                of_runs = {name for name in names if prefix and _RUN_SUFFIX.fullmatch(name.removeprefix(prefix))}
                for table in sorted({self.staging, *of_runs} - {""}):
                    connection.run(f"DROP TABLE IF EXISTS {table}")
        except Exception as error:  # noqa: BLE001 - the outcome of the commit is the same
            if self.staging:
                warn_not_dropped(self.staging, self.database, error)

    @property
    def _dialect(self) -> JdbcDialect:
        dialect = dialect_of(self.database)
        assert dialect is not None
        return dialect

    def _connect(self, access: Access) -> JdbcConnection:
        secrets = secrets_for(access, self.address, self.database)
        if with_absolute_path(self.database) != self.database or (URL_MASK in self.database and "url" not in secrets):
            raise SinkError(
                f"{self.database} cannot be reached with the URL in the journal",
                cause="it has a relative path, or a part that may be a secret and is not stored",
                hint="run the job again, or pass the complete `url` to `penstock recover`, see its --help",
            )
        options = {"url": self.database, "dbtable": self.table, **with_secrets(self.properties, secrets)}
        return JdbcTarget(access.bridge, options).connect()


def warn_not_dropped(table: str, url: str, error: Exception) -> None:
    """Log a warning that a staging table could not be dropped; the user has to drop it."""
    log.warning(
        "the staging table %s of %s could not be dropped: %s; no job needs its rows, so drop it",
        table,
        url,
        masked(root_cause(error)),
    )


def secrets_key_of(url: str, properties: Mapping[str, str]) -> str:
    """Return the key in `Access.secrets` of a database and its user; `url` must be masked."""
    dialect = dialect_of(url)
    user = next((value for key, value in properties.items() if key.lower() == "user"), None)
    return client_key(url, user if dialect is not None and dialect.has_users else None)
