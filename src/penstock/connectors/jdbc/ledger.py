"""What Penstock keeps in a database that it writes to: which tokens it holds, and where the journals of commits lie."""

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
from penstock.connectors.extras import given_for
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
_WIDTH = 200
_PLAIN = re.compile(rf"(?!sha256:)(?=.{{1,{_WIDTH}}}$)[a-z0-9._:/-]+( [a-z0-9._:/-]+)*")
"""Names that every database tells apart: some take upper and lower case, or accents, for the same."""


def entry_of(table: str, token: str) -> str:
    """Return a token of a table as the ledger has it: as it is, or a hash of both where one is not plain."""
    if _PLAIN.fullmatch(table) and _PLAIN.fullmatch(token):
        return token
    both = f"{table}\0{token}".encode()
    return f"sha256:{hashlib.sha256(both).hexdigest()}"


def make_ledger(dialect: JdbcDialect, database: JdbcConnection) -> None:
    """Make the ledger if it is not there."""
    columns = f"target varchar({_WIDTH}) NOT NULL, token varchar({_WIDTH}) NOT NULL"
    make_table(dialect, database, _LEDGER, f"({columns}, PRIMARY KEY (target, token))")


def check_ledger(dialect: JdbcDialect, database: JdbcConnection) -> None:
    """Make the ledger if it is not there, and try to write to it; all else in the connection is in a transaction then.

    Raises
    ------
    Exception
        If the user may not make it, or not write to it.
    """
    make_ledger(dialect, database)
    if not dialect.has_users:  # who may write to its file may write to all tables, but may have to wait
        return
    tried = f"try {uuid.uuid4().hex}"
    database.begin()  # nobody commits it: closing the connection takes it back
    add_token(database, tried, tried)
    remove_token(database, tried, tried)


def keeps_tokens_apart(database: JdbcConnection) -> bool:
    """Whether the ledger refuses a token that it has; one that somebody else has made may not.

    If the database does not tell, it is taken for one that does.
    """
    try:
        return any(key <= {"target", "token"} for key in database.unique_keys(_LEDGER))
    except Exception:
        log.warning("whether %s has a unique key is not known", _LEDGER, exc_info=True)
        return True


def has_token(dialect: JdbcDialect, database: JdbcConnection, table: str, token: str) -> bool:
    """Whether a table's token is in the ledger, which is made if it is not there."""
    make_ledger(dialect, database)
    entry = entry_of(table, token)
    asked = f"SELECT target, token FROM {_LEDGER} WHERE target = ? AND token IN (?, ?)"  # older ones as they are
    return bool({(table[:_WIDTH], entry), (table, token)} & set(database.rows(asked, table[:_WIDTH], entry, token)))


def add_token(database: JdbcConnection, table: str, token: str) -> None:
    """Put a token into the ledger; waits for a transaction that has put it there, and fails if that commits."""
    database.run(f"INSERT INTO {_LEDGER} (target, token) VALUES (?, ?)", table[:_WIDTH], entry_of(table, token))


def remove_token(database: JdbcConnection, table: str, token: str) -> None:
    """Take a token out of the ledger."""
    statement = f"DELETE FROM {_LEDGER} WHERE target = ? AND token = ?"
    database.run(statement, table[:_WIDTH], entry_of(table, token))


def make_table(dialect: JdbcDialect, database: JdbcConnection, table: str, what: str) -> None:
    """Make a table if it is not there; several jobs may want to at once.

    Parameters
    ----------
    what
        How the CREATE TABLE goes on behind the name.
    """
    if dialect.has_table(database, table):
        return
    try:
        database.run(f"CREATE TABLE IF NOT EXISTS {table} {what}")
    except Exception:
        if not dialect.has_table(database, table):  # PostgreSQL's IF NOT EXISTS fails if another makes it just then
            raise


def point(dialect: JdbcDialect, database: JdbcConnection, table: str, journal: str) -> None:
    """Put a row into the table of journals, which is made if it is not there."""
    columns = f"(target varchar({_WIDTH}) NOT NULL, journal varchar(2000) NOT NULL)"
    make_table(dialect, database, _JOURNALS, columns)
    database.run(f"INSERT INTO {_JOURNALS} VALUES (?, ?)", table[:_WIDTH], journal)


def unpoint(dialect: JdbcDialect, database: JdbcConnection, journal: str) -> None:
    """Remove the rows of a journal; a database that was away when it was written may have none, nor their table."""
    if dialect.has_table(database, _JOURNALS):
        database.run(f"DELETE FROM {_JOURNALS} WHERE journal = ?", journal)


def recover_table(access: Access, database: str, address: str, table: str) -> None:
    """Recover the commits that a dead process has left half-way at a table; called before it is written again."""
    dialect = dialect_of(database)
    assert dialect is not None
    options = {"dbtable": table, **given_for(access, address)}
    target = JdbcTarget(access.bridge, options)
    try:
        with JdbcTarget(access.bridge, {**dialect.asking_waits(timeout()), **options}).connect() as connection:
            if not dialect.has_table(connection, _JOURNALS):
                return
            asked = f"SELECT DISTINCT journal FROM {_JOURNALS} WHERE target = ?"
            found = connection.rows(asked, table[:_WIDTH])
    except CommitError:
        raise
    except Exception:  # `JdbcSink.open` tells what is wrong
        log.debug("%s cannot be asked for journals", table, exc_info=True)
        return
    for (journal,) in found:
        try:
            check_pointed(str(journal), warehouse_of(access.bridge))
            gone = recover(access, str(journal)).direction is Direction.GONE
        except UntrustedJournalError as error:
            warn_of(error)
            continue
        if gone and tag_is_alive(str(journal)) is False:  # its process died before it wrote the journal
            with target.connect() as connection:
                unpoint(dialect, connection, str(journal))
