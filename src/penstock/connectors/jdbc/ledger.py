"""Penstock's tables in a target database: the ledger of committed tokens, and the table of journals."""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from typing import TYPE_CHECKING

from penstock.commit import Direction, recover
from penstock.commit.journal import warehouse_of
from penstock.commit.owner import tag_is_alive
from penstock.commit.trust import check_pointed, warn_of
from penstock.connectors.extras import secrets_for
from penstock.connectors.jdbc.source import dialect_of
from penstock.connectors.timeouts import timeout
from penstock.errors import CommitError, UntrustedJournalError
from penstock.spark.jdbc import JdbcTarget

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.connectors.jdbc.dialect import JdbcDialect
    from penstock.spark.jdbc import JdbcConnection

log = logging.getLogger("penstock.sinks")

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

    Raises
    ------
    Exception
        If the user may not create the ledger, or not write to it.
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

    Parameters
    ----------
    definition
        The part of CREATE TABLE after the name.
    """
    if dialect.has_table(database, table):
        return
    try:
        database.run(f"CREATE TABLE IF NOT EXISTS {table} {definition}")
    except Exception:
        if not dialect.has_table(
            database, table
        ):  # PostgreSQL's IF NOT EXISTS may fail if another job creates it concurrently
            raise


def register_journal(dialect: JdbcDialect, database: JdbcConnection, table: str, journal: str) -> None:
    """Add a journal to the table of journals; create that table if it does not exist."""
    columns = f"(target varchar({_MAX_LENGTH}) NOT NULL, journal varchar(2000) NOT NULL)"
    create_table(dialect, database, _JOURNALS, columns)
    database.run(f"INSERT INTO {_JOURNALS} VALUES (?, ?)", table[:_MAX_LENGTH], journal)


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
