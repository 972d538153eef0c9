"""Commit record of a database table: staged rows that a transaction copies into the table."""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit import Direction, Prepared, recover
from penstock.commit.journal import warehouse_of
from penstock.commit.owner import tag_is_alive
from penstock.commit.trust import check_pointed, warn_of
from penstock.connectors.core.extras import client_key, secrets_for, with_secrets
from penstock.connectors.core.timeouts import timeout
from penstock.connectors.jdbc.source import dialect_of, is_masked, masked, with_absolute_path
from penstock.errors import CommitError, SinkError, UntrustedJournalError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.io.jdbc import JdbcTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit import Access
    from penstock.connectors.jdbc.dialect import JdbcDialect
    from penstock.spark.io.jdbc import JdbcConnection

_PART = r"""("([^"\\\0]|"")+"|`([^`\\\0]|``)+`|\[[^\]\\\0]+\]|[\w$]+)"""
_IDENTIFIER = re.compile(_PART)
_TABLE = re.compile(rf"{_PART}(\s*\.\s*{_PART}){{0,2}}")
_STAGED = re.compile(r"penstock_[a-z0-9]{0,20}_[0-9a-f]{12}(_[0-9a-f]{12})?")
_RUN = re.compile(r"[0-9a-f]{12}")
_OF_TOKEN = re.compile(r"penstock_[a-z0-9]{0,20}_[0-9a-f]{12}_")
log = logging.getLogger("penstock.sinks")

TASK, ATTEMPT = "penstock_task", "penstock_attempt"
_LEDGER, _JOURNALS = "penstock_commits", "penstock_journals"
_MAX_LENGTH = 200
_PLAIN = re.compile(rf"(?!sha256:)(?=.{{1,{_MAX_LENGTH}}}$)[a-z0-9._:/-]+( [a-z0-9._:/-]+)*")
"""Names that every database distinguishes: some ignore case or accents."""


def ledger_entry(table: str, token: str) -> str:
    """Return the token column of a ledger entry: the token, or a hash of table and token unless both are plain."""
    if _PLAIN.fullmatch(table) and _PLAIN.fullmatch(token):
        return token
    both = f"{table}\0{token}".encode()
    return f"sha256:{hashlib.sha256(both).hexdigest()}"


def create_ledger(dialect: JdbcDialect, database: JdbcConnection) -> None:
    """Create the ledger if it does not exist."""
    columns = f"target varchar({_MAX_LENGTH}) NOT NULL, token varchar({_MAX_LENGTH}) NOT NULL"
    create_table(dialect, database, _LEDGER, f"({columns}, PRIMARY KEY (target, token))")


def check_ledger(dialect: JdbcDialect, database: JdbcConnection) -> None:
    """Create the ledger if it does not exist, and test writing to it in a transaction that the caller does not commit.

    Raise an error if the user may not create the ledger, or not write to it.
    """
    create_ledger(dialect, database)
    if not dialect.has_users:  # a user who can write to the file can write to all tables, but may have to wait
        return
    entry = f"try {uuid.uuid4().hex}"
    database.begin()  # never committed: closing the connection rolls it back
    add_token(database, entry, entry)
    remove_token(database, entry, entry)


def has_unique_key(database: JdbcConnection) -> bool:
    """Return whether the ledger rejects duplicate tokens; a ledger that Penstock did not create may not.

    True if the database does not report its unique keys.
    """
    try:
        return any(key <= {"target", "token"} for key in database.unique_keys(_LEDGER))
    except Exception:
        log.warning("the unique keys of %s could not be read", _LEDGER, exc_info=True)
        return True


def has_token(dialect: JdbcDialect, database: JdbcConnection, table: str, token: str) -> bool:
    """Return whether the ledger has a table's token; create the ledger if it does not exist."""
    create_ledger(dialect, database)
    entry = ledger_entry(table, token)
    # Older releases stored all tokens unhashed.
    query = f"SELECT target, token FROM {_LEDGER} WHERE target = ? AND token IN (?, ?)"
    return bool(
        {(table[:_MAX_LENGTH], entry), (table, token)} & set(database.rows(query, table[:_MAX_LENGTH], entry, token))
    )


def add_token(database: JdbcConnection, table: str, token: str) -> None:
    """Add a token to the ledger; wait for a transaction that has added it, and fail if that commits."""
    database.run(
        f"INSERT INTO {_LEDGER} (target, token) VALUES (?, ?)", table[:_MAX_LENGTH], ledger_entry(table, token)
    )


def remove_token(database: JdbcConnection, table: str, token: str) -> None:
    """Remove a token from the ledger."""
    statement = f"DELETE FROM {_LEDGER} WHERE target = ? AND token = ?"
    database.run(statement, table[:_MAX_LENGTH], ledger_entry(table, token))


def create_table(dialect: JdbcDialect, database: JdbcConnection, table: str, definition: str) -> None:
    """Create a table if it does not exist; several jobs may call this concurrently.

    `definition` is the part of CREATE TABLE after the name.
    """
    if dialect.has_table(database, table):
        return
    try:
        database.run(f"CREATE TABLE IF NOT EXISTS {table} {definition}")
    except Exception:  # PostgreSQL's IF NOT EXISTS may fail if another job creates it concurrently
        if not dialect.has_table(database, table):
            raise


def unregister_journal(dialect: JdbcDialect, database: JdbcConnection, journal: str) -> None:
    """Remove a journal; the database may lack it, and the table, if it was unreachable when it was registered."""
    if dialect.has_table(database, _JOURNALS):
        database.run(f"DELETE FROM {_JOURNALS} WHERE journal = ?", journal)


def recover_table(access: Access, database: str, address: str, table: str) -> None:
    """Recover interrupted commits of dead processes to a table; called before the table is written again."""
    dialect = dialect_of(database)
    assert dialect is not None
    options = {"dbtable": table, **secrets_for(access, address)}
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
            check_pointed(str(journal), warehouse_of(access.bridge))
            gone = recover(access, str(journal)).direction is Direction.GONE
        except UntrustedJournalError as error:
            warn_of(error)
            continue
        if gone and tag_is_alive(str(journal)) is False:  # the process died before it wrote the journal
            with target.connect() as connection:
                unregister_journal(dialect, connection, str(journal))


@dataclass
class _Transaction:
    """An open transaction that has copied the rows of some records, and has only its COMMIT left."""

    database: JdbcConnection
    copied: list[PreparedJdbc] = field(default_factory=list)

    def close(self) -> None:
        self.database.close()


@dataclass(frozen=True)
class PreparedJdbc(Prepared):
    """Commit record of rows in a staging table.

    `database` is the URL without passwords; `columns` and `key`, the key columns of an upsert, are quoted. `staging` is
    empty if the token is in the target already. `receipt` identifies the commit in the ledger if there is no token; it
    is None if the user may not write to the ledger. `of_token` is the common prefix of the staging tables of all runs
    with this token, None without a token. `properties` are options of Spark's writer without secrets.
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

        Raise `SinkError` if that is unknown, because the user may not write to the ledger, or the ledger has no unique
        key.
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

        Raise `SinkError` if there is no ledger entry from which a recovery could determine whether the rows were
        committed.
        """
        if self._entry is None:
            raise SinkError.no_ledger(self.table, self.database, "its job has other sinks, with which it commits")
        with self._connect(access) as database:
            columns = f"(target varchar({_MAX_LENGTH}) NOT NULL, journal varchar(2000) NOT NULL)"
            create_table(self._dialect, database, _JOURNALS, columns)
            database.run(f"INSERT INTO {_JOURNALS} VALUES (?, ?)", self.table[:_MAX_LENGTH], journal)

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
